/* Writing: Convert, the servers' sums and FSS.ConvertGen. Included by dpf_body.h, once per instruction set. */

/* ---- Convert: blocks H_K(seed ^ 0), H_K(seed ^ 1), ... ----
 *
 * sigma is linear, so sigma(seed ^ c) = sigma(seed) ^ sigma(c): the counter is folded into the first and the last
 * round key. Of a row's blocks, full * 4 are computed four counters at a time from one seed; the rest (tail) are
 * computed one counter at a time from four seeds, so that no lane is idle.
 */
typedef struct {
    const NAME(key) *key;
    V4 *first, *last; /* round keys 0 and 10 with the counters folded in: `full` of them, then `tail` */
} NAME(converter);

/* sigma(counter) for the four counters starting with `counter`, or for one counter in all four lanes. */
LANE_FN V4 NAME(sigma_counters)(uint64_t counter, uint64_t step) {
    uint64_t words[GROUP * 2];
    for (uint64_t i = 0; i < GROUP; i++) words[2 * i] = 0, words[2 * i + 1] = counter + step * i;
    return NAME(v_load)((const uint8_t *)words);
}

TARGET static void NAME(fold_counters)(const NAME(converter) *c, row_t row) {
    for (size_t v = 0; v < row.full + row.tail; v++) {
        const V4 counters = v < row.full ? NAME(sigma_counters)(GROUP * v, 1)
                                         : NAME(sigma_counters)(GROUP * row.full + (v - row.full), 0);
        c->first[v] = NAME(v_xor)(c->key->k[0], counters);
        c->last[v] = NAME(v_xor)(c->key->k[ROUNDS], counters);
    }
}

/* Vector v of the blocks of n seeds whose sigma is in s. */
LANE_FN void NAME(convert_some)(const NAME(converter) *c, size_t v, const V4 *s, V4 *x, const int n) {
    const V4 first = c->first[v], last = c->last[v];
    for (int j = 0; j < n; j++) x[j] = NAME(v_xor)(s[j], first);
    AES_MIDDLE(x, n, c->key);
    for (int j = 0; j < n; j++) x[j] = NAME(v_aeslast)(x[j], NAME(v_xor)(s[j], last));
}

/* ---- writing: sums[item] += (-1)^party * (Convert(s) + t * CW), summed over sessions chunk by chunk ---- */

/* Sums of one chunk: full vectors by (leaf, lane, v), tail vectors by (leaf, v); the same for the correction words. */
typedef struct {
    uint8_t *full, *tail;
    uint8_t *full_words; /* (2, GROUP, full): zeros, then the words, so that t picks one without a branch */
    uint8_t *tail_words; /* (tail) */
    uint8_t *full_totals; /* (GROUP, full): Convert of one session's four slots, summed over the leaves */
    uint8_t *tail_totals; /* (tail) */
} NAME(sums);

/* What a pass over the leaves computes: the items' sums, each slot's sum over its leaves, or both. */
enum { NAME(FOR_ITEMS) = 1, NAME(FOR_SLOTS) = 2 };

LANE_FN void NAME(add_vector)(uint8_t *at, V4 x, const size_t element) {
    NAME(v_store)(at, NAME(ring_add)(NAME(v_load)(at), x, element));
}

/* Add vector v of n (leaf, lane) pairs, starting with `pair`, to the totals of their lanes. */
LANE_FN void NAME(total_full)(const NAME(sums) *sums, row_t row, size_t pair, size_t n, size_t v, const V4 *x,
                              const size_t element) {
    for (size_t j = 0; j < smaller(GROUP, IN_FLIGHT); j++) {
        V4 total = x[j];
        for (size_t more = j + GROUP; more < n; more += GROUP) total = NAME(ring_add)(total, x[more], element);
        NAME(add_vector)(sums->full_totals + ((pair + j) % GROUP * row.full + v) * VECTOR, total, element);
    }
}

LANE_FN void NAME(total_tail)(const NAME(sums) *sums, size_t n, size_t v, const V4 *x, const size_t element) {
    V4 total = x[0];
    for (size_t j = 1; j < n; j++) total = NAME(ring_add)(total, x[j], element);
    NAME(add_vector)(sums->tail_totals + v * VECTOR, total, element);
}

/* The full vectors of all leaves: IN_FLIGHT (leaf, lane) pairs at a time. */
LANE_FN void NAME(add_full)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count, const NAME(sums) *sums,
                            const size_t element, const int aims) {
    const uint8_t *states = (const uint8_t *)nodes;
    for (size_t pair = 0; row.full && pair < count * GROUP; pair += IN_FLIGHT) {
        V4 s[IN_FLIGHT];
        const uint8_t *words[IN_FLIGHT];
        for (size_t j = 0; j < IN_FLIGHT; j++) {
            const uint8_t *state = states + (pair + j) * BLOCK;
            s[j] = NAME(sigma_seed)(NAME(v_bcast)(state));
            words[j] = sums->full_words + ((state[0] & 1) * GROUP + (pair + j) % GROUP) * row.full * VECTOR;
        }
        for (size_t v = 0; v < row.full; v++) {
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, v, s, x, IN_FLIGHT);
            if (aims & NAME(FOR_SLOTS))
                NAME(total_full)(sums, row, pair, smaller(IN_FLIGHT, count * GROUP - pair), v, x, element);
            for (size_t j = 0; aims & NAME(FOR_ITEMS) && j < IN_FLIGHT; j++) {
                uint8_t *at = sums->full + ((pair + j) * row.full + v) * VECTOR;
                const V4 sum = NAME(ring_add)(NAME(v_load)(at), NAME(v_load)(words[j] + v * VECTOR), element);
                NAME(v_store)(at, NAME(ring_add)(sum, x[j], element));
            }
        }
    }
}

/* The tail vectors of all leaves: IN_FLIGHT leaves at a time, the lanes of a vector are the four slots. */
LANE_FN void NAME(add_tail)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count, const NAME(sums) *sums,
                            const size_t element, const int aims) {
    for (size_t leaf = 0; leaf < count; leaf += IN_FLIGHT) {
        V4 s[IN_FLIGHT], t[IN_FLIGHT];
        for (size_t j = 0; j < IN_FLIGHT; j++) {
            s[j] = NAME(sigma_seed)(nodes[leaf + j]);
            t[j] = NAME(v_control)(nodes[leaf + j]);
        }
        for (size_t v = 0; v < row.tail; v++) {
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, row.full + v, s, x, IN_FLIGHT);
            if (aims & NAME(FOR_SLOTS)) NAME(total_tail)(sums, smaller(IN_FLIGHT, count - leaf), v, x, element);
            for (size_t j = 0; aims & NAME(FOR_ITEMS) && j < IN_FLIGHT; j++) {
                uint8_t *at = sums->tail + ((leaf + j) * row.tail + v) * VECTOR;
                const V4 word = NAME(v_and)(t[j], NAME(v_load)(sums->tail_words + v * VECTOR));
                const V4 sum = NAME(ring_add)(NAME(v_load)(at), word, element);
                NAME(v_store)(at, NAME(ring_add)(sum, x[j], element));
            }
        }
    }
}

LANE_FN void NAME(add_leaves_for)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count,
                                  const NAME(sums) *sums, const int aims) {
    if (row.element == 8) {
        NAME(add_full)(c, row, nodes, count, sums, 8, aims);
        NAME(add_tail)(c, row, nodes, count, sums, 8, aims);
    } else {
        NAME(add_full)(c, row, nodes, count, sums, 4, aims);
        NAME(add_tail)(c, row, nodes, count, sums, 4, aims);
    }
}

TARGET static void NAME(add_leaves)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count,
                                    const NAME(sums) *sums, int aims) {
    if (aims == NAME(FOR_ITEMS))
        NAME(add_leaves_for)(c, row, nodes, count, sums, NAME(FOR_ITEMS));
    else if (aims == NAME(FOR_SLOTS))
        NAME(add_leaves_for)(c, row, nodes, count, sums, NAME(FOR_SLOTS));
    else
        NAME(add_leaves_for)(c, row, nodes, count, sums, NAME(FOR_ITEMS) | NAME(FOR_SLOTS));
}

/* Arrange the correction words of one session's four slots like the sums. */
static void NAME(load_words)(const NAME(sums) *sums, row_t row, const uint8_t *words, size_t available) {
    const size_t full = row.full * VECTOR;
    for (size_t lane = 0; lane < smaller(GROUP, available); lane++) {
        const uint8_t *from = words + lane * row.bytes;
        memcpy(sums->full_words + (GROUP + lane) * full, from, smaller(full, row.bytes));
        for (size_t v = 0; v < row.tail; v++) {
            const size_t at = full + v * BLOCK;
            memcpy(sums->tail_words + v * VECTOR + lane * BLOCK, from + at, smaller(BLOCK, row.bytes - at));
        }
    }
}

LANE_FN void NAME(add_elements)(uint8_t *sums, const uint8_t *values, size_t bytes, const size_t element,
                                const int negative) {
    for (size_t i = 0; i < bytes / element; i++) {
        if (element == 8) {
            const uint64_t value = ((const uint64_t *)values)[i];
            ((uint64_t *)sums)[i] += negative ? 0 - value : value;
        } else {
            const uint32_t value = ((const uint32_t *)values)[i];
            ((uint32_t *)sums)[i] += negative ? 0 - value : value;
        }
    }
}

/* sums += or -= totals + times * words */
LANE_FN void NAME(add_total)(uint8_t *sums, const uint8_t *totals, const uint8_t *words, uint32_t times, size_t bytes,
                             const size_t element, const int negative) {
    for (size_t i = 0; i < bytes / element; i++) {
        if (element == 8) {
            const uint64_t value = ((const uint64_t *)totals)[i] + times * ((const uint64_t *)words)[i];
            ((uint64_t *)sums)[i] += negative ? 0 - value : value;
        } else {
            const uint32_t value = ((const uint32_t *)totals)[i] + times * ((const uint32_t *)words)[i];
            ((uint32_t *)sums)[i] += negative ? 0 - value : value;
        }
    }
}

/* Add one session's totals of a finished chunk to the sums of its slots: sum of Convert(s), plus CW for each t. */
TARGET static void NAME(deliver_totals)(const NAME(sums) *sums, row_t row, const V4 *nodes, size_t count, size_t lanes,
                                        const uint8_t *words, int negative, uint8_t *out) {
    const size_t full = row.full * VECTOR;
    for (size_t lane = 0; lane < lanes; lane++, words += row.bytes, out += row.bytes) {
        const uint8_t *control = (const uint8_t *)nodes + lane * BLOCK, *totals = sums->full_totals + lane * full;
        uint32_t ones = 0;
        for (size_t leaf = 0; leaf < count; leaf++) ones += control[leaf * VECTOR] & 1;
        for (size_t v = 0; v <= row.tail; v++) { /* the full vectors, then one block of each tail vector */
            const size_t at = v ? full + (v - 1) * BLOCK : 0, bytes = smaller(v ? BLOCK : full, row.bytes - at);
            const uint8_t *from = v ? sums->tail_totals + (v - 1) * VECTOR + lane * BLOCK : totals;
            if (row.element == 8)
                NAME(add_total)(out + at, from, words + at, ones, bytes, 8, negative);
            else
                NAME(add_total)(out + at, from, words + at, ones, bytes, 4, negative);
        }
    }
}

/* Add one lane's sums of a finished chunk to the items they belong to. */
LANE_FN void NAME(deliver_lane)(const NAME(sums) *sums, row_t row, const table_t *table, size_t lane,
                                const int32_t *order, size_t count, uint8_t *out, const size_t element,
                                const int negative) {
    enum { AHEAD = 4 };
    const size_t full = row.full * VECTOR;
    for (size_t leaf = 0; leaf < count; leaf++) {
        const int32_t later = order[smaller(leaf + AHEAD, count - 1)];
        if ((uint32_t)later < table->items)
            for (size_t at = 0; at < row.bytes; at += VECTOR) __builtin_prefetch(out + (size_t)later * row.bytes + at, 1);
        if ((uint32_t)order[leaf] >= table->items) continue; /* a short bin */
        uint8_t *item = out + (size_t)order[leaf] * row.bytes;
        NAME(add_elements)(item, sums->full + (leaf * GROUP + lane) * full, smaller(full, row.bytes), element, negative);
        for (size_t v = 0; v < row.tail; v++) {
            const size_t at = full + v * BLOCK;
            NAME(add_elements)(item + at, sums->tail + (leaf * row.tail + v) * VECTOR + lane * BLOCK,
                               smaller(BLOCK, row.bytes - at), element, negative);
        }
    }
}

TARGET static void NAME(deliver)(const NAME(sums) *sums, row_t row, const table_t *table, size_t slot, size_t lanes,
                                 size_t first, size_t count, int negative, uint8_t *out) {
    for (size_t lane = 0; lane < lanes; lane++) {
        const int32_t *order = table->order + (slot + lane) / table->slots_per_bin * table->leaves + first;
        if (row.element == 8)
            NAME(deliver_lane)(sums, row, table, lane, order, count, out, 8, negative);
        else
            NAME(deliver_lane)(sums, row, table, lane, order, count, out, 4, negative);
    }
}

/* The end of the run of slots whose groups of four can share sums: whole groups of one bin, or a single group. */
static size_t NAME(end_of_run)(const table_t *table, size_t slot, size_t slot_to) {
    const size_t bin_end = (slot / table->slots_per_bin + 1) * table->slots_per_bin;
    const size_t whole = smaller(bin_end, slot_to) - slot;
    return whole >= GROUP ? slot + whole / GROUP * GROUP : smaller(slot + GROUP, slot_to);
}

/* `out` holds the items' sums (items, width), `slot_sums` each session's (sessions, slots, width); either may be NULL. */
TARGET static int NAME(accumulate)(const paths_t *p, const table_t *table, const part_t *part, const uint8_t *words,
                                   row_t row, uint8_t *out, uint8_t *slot_sums) {
    const size_t vectors = row.full + row.tail, totals = row.full * GROUP * VECTOR + row.tail * VECTOR;
    const size_t a_leaf = out ? totals : 0;
    const int bits = NAME(chunk_bits_for)(p->depth, a_leaf ? a_leaf : VECTOR);
    const int aims = (out ? NAME(FOR_ITEMS) : 0) | (slot_sums ? NAME(FOR_SLOTS) : 0);
    const size_t chunk = (size_t)1 << bits, room = round_up(chunk, IN_FLIGHT);
    const size_t folded = vectors * sizeof(V4);
    const size_t padded = (1 + 2 * GROUP) * row.full * VECTOR + row.tail * VECTOR + totals;
    uint8_t *schedules = NAME(schedules_of)(p);
    uint8_t *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)) + 2 * folded + room * a_leaf + padded);
    if (!schedules || !memory) {
        free(schedules), free(memory);
        return 1;
    }
    NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
    uint8_t *after = (uint8_t *)tree + sizeof(NAME(tree));
    NAME(key) key;
    const NAME(converter) c = {&key, (V4 *)after, (V4 *)(after + folded)};
    NAME(sums) sums = {.full = after + 2 * folded};
    sums.tail = sums.full + (out ? room * row.full * GROUP * VECTOR : 0);
    sums.full_words = sums.full + room * a_leaf;
    sums.tail_words = sums.full_words + 2 * GROUP * row.full * VECTOR;
    sums.full_totals = sums.tail_words + row.tail * VECTOR;
    sums.tail_totals = sums.full_totals + GROUP * row.full * VECTOR;
    for (size_t slot = part->slot_from, next; slot < part->slot_to; slot = next) {
        next = NAME(end_of_run)(table, slot, part->slot_to);
        const size_t lanes = smaller(GROUP, next - slot);
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk) {
            const size_t count = smaller(chunk, part->leaf_to - first);
            memset(sums.full, 0, room * a_leaf);
            for (size_t session = 0; session < p->sessions; session++) {
                const uint8_t *schedule = SCHEDULES(schedules, session);
                key = NAME(load_key)(schedule + 2 * (ROUNDS + 1) * BLOCK);
                NAME(fold_counters)(&c, row);
                for (size_t group = slot; group < next; group += GROUP) {
                    NAME(load_tree)(tree, p, schedule, session, group);
                    const size_t at = (session * p->slots + group) * row.bytes;
                    NAME(load_words)(&sums, row, words + at, lanes);
                    const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                         (V4 *)(memory + NODE_BYTES));
                    if (slot_sums) memset(sums.full_totals, 0, totals);
                    NAME(add_leaves)(&c, row, nodes, count, &sums, aims);
                    if (slot_sums)
                        NAME(deliver_totals)(&sums, row, nodes, count, lanes, words + at, p->party, slot_sums + at);
                }
            }
            if (out) NAME(deliver)(&sums, row, table, slot, lanes, first, count, p->party, out);
        }
    }
    free(schedules), free(memory);
    return 0;
}

/* ---- FSS.ConvertGen ---- */

/* (-1)^t1 * (payload - c0 + c1), without a branch on t1: `sign` is all ones where it is set. */
LANE_FN V4 NAME(correct)(V4 payload, V4 c0, V4 c1, V4 sign, const size_t element) {
    const V4 word = NAME(ring_add)(NAME(ring_sub)(payload, c0, element), c1, element);
    return NAME(ring_sub)(NAME(v_xor)(word, sign), sign, element);
}

LANE_FN V4 NAME(load_some)(const uint8_t *from, size_t bytes) {
    uint8_t four[VECTOR] = {0};
    if (bytes >= VECTOR) return NAME(v_load)(from);
    memcpy(four, from, bytes);
    return NAME(v_load)(four);
}

LANE_FN void NAME(store_some)(uint8_t *to, size_t bytes, V4 x) {
    uint8_t four[VECTOR];
    if (bytes >= VECTOR) {
        NAME(v_store)(to, x);
        return;
    }
    NAME(v_store)(four, x);
    memcpy(to, four, bytes);
}

#define PAIRS (IN_FLIGHT / 2)

/* The full vectors of all slots: both parties' seeds of PAIRS slots at a time. */
LANE_FN void NAME(full_words)(const NAME(converter) *c, row_t row, const uint8_t *leaf0, const uint8_t *leaf1,
                              const uint8_t *payload, size_t slots, uint8_t *words, const size_t element) {
    for (size_t at = 0; row.full && at < slots; at += PAIRS) {
        V4 s[IN_FLIGHT], sign[PAIRS];
        for (size_t j = 0; j < PAIRS; j++) {
            const size_t slot = smaller(at + j, slots - 1);
            const V4 second = NAME(v_bcast)(leaf1 + slot * BLOCK);
            s[2 * j] = NAME(sigma_seed)(NAME(v_bcast)(leaf0 + slot * BLOCK));
            s[2 * j + 1] = NAME(sigma_seed)(second);
            sign[j] = NAME(v_control)(second);
        }
        for (size_t v = 0; v < row.full; v++) {
            const size_t offset = v * VECTOR, bytes = row.bytes - offset;
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, v, s, x, IN_FLIGHT);
            for (size_t j = 0; j < PAIRS; j++) {
                const size_t place = smaller(at + j, slots - 1) * row.bytes + offset;
                const V4 value = NAME(load_some)(payload + place, bytes);
                NAME(store_some)(words + place, bytes, NAME(correct)(value, x[2 * j], x[2 * j + 1], sign[j], element));
            }
        }
    }
}

/* The tail vectors: one counter, four slots at a time. */
LANE_FN void NAME(tail_words)(const NAME(converter) *c, row_t row, const uint8_t *leaf0, const uint8_t *leaf1,
                              const uint8_t *payload, size_t slots, uint8_t *words, const size_t element) {
    for (size_t at = 0; row.tail && at < slots; at += GROUP) {
        const V4 second = NAME(load_group)(leaf1 + at * BLOCK, slots - at), sign = NAME(v_control)(second);
        const V4 s[2] = {NAME(sigma_seed)(NAME(load_group)(leaf0 + at * BLOCK, slots - at)), NAME(sigma_seed)(second)};
        for (size_t v = 0; v < row.tail; v++) {
            const size_t offset = row.full * VECTOR + v * BLOCK, bytes = smaller(BLOCK, row.bytes - offset);
            uint8_t four[VECTOR] = {0};
            V4 x[2];
            NAME(convert_some)(c, row.full + v, s, x, 2);
            for (size_t j = 0; j < smaller(GROUP, slots - at); j++)
                memcpy(four + j * BLOCK, payload + (at + j) * row.bytes + offset, bytes);
            NAME(v_store)(four, NAME(correct)(NAME(v_load)(four), x[0], x[1], sign, element));
            for (size_t j = 0; j < smaller(GROUP, slots - at); j++)
                memcpy(words + (at + j) * row.bytes + offset, four + j * BLOCK, bytes);
        }
    }
}

TARGET static int NAME(convert_gen)(const uint8_t *bytes, const uint8_t *leaf0, const uint8_t *leaf1,
                                    const uint8_t *payload, size_t slots, row_t row, uint8_t *words) {
    const size_t folded = (row.full + row.tail) * sizeof(V4);
    uint8_t *memory = take_lines(2 * folded);
    if (!memory) return 1;
    const NAME(key) key = NAME(make_key)(bytes);
    const NAME(converter) c = {&key, (V4 *)memory, (V4 *)(memory + folded)};
    NAME(fold_counters)(&c, row);
    if (row.element == 8) {
        NAME(full_words)(&c, row, leaf0, leaf1, payload, slots, words, 8);
        NAME(tail_words)(&c, row, leaf0, leaf1, payload, slots, words, 8);
    } else {
        NAME(full_words)(&c, row, leaf0, leaf1, payload, slots, words, 4);
        NAME(tail_words)(&c, row, leaf0, leaf1, payload, slots, words, 4);
    }
    free(memory);
    return 0;
}
