// Which item goes into which slot: a maximum matching, in which earlier items win.

const NONE = -1;

/** Return one of its choices for each item, or −1: no slot is used twice, and as few items as possible get none. */
export function maximumMatching(choices: readonly ArrayLike<number>[], slots: number): Int32Array {
  const slotOf = new Int32Array(choices.length).fill(NONE);
  const holder = new Int32Array(slots).fill(NONE);
  const dead = new Set<number>(); // slots that lead only to one another
  const waiting: number[] = [];
  choices.forEach((own, item) => {
    const free = Array.prototype.find.call(own, (slot: number) => holder[slot] === NONE) as number | undefined;
    if (free === undefined) waiting.push(item);
    else {
      holder[free] = item;
      slotOf[item] = free;
    }
  });
  for (const item of waiting) augment(item);
  return slotOf;

  function augment(start: number): void {
    const reachedBy = new Map<number, number>();
    const queue = [start];
    for (let at = 0; at < queue.length; at++) {
      const own = choices[queue[at]!]!;
      for (let index = 0; index < own.length; index++) {
        const slot = own[index]!;
        if (reachedBy.has(slot) || dead.has(slot)) continue;
        reachedBy.set(slot, queue[at]!);
        if (holder[slot] === NONE) return shift(slot, reachedBy);
        queue.push(holder[slot]!);
      }
    }
    for (const slot of reachedBy.keys()) dead.add(slot);
  }

  function shift(end: number, reachedBy: Map<number, number>): void {
    let slot = end;
    while (slot !== NONE) {
      const item = reachedBy.get(slot)!;
      holder[slot] = item;
      [slot, slotOf[item]] = [slotOf[item]!, slot];
    }
  }
}
