// The interface of a model: gradients for a device's own ratings, and scores. Implement this for your own model.
//
// A model has three parts. Its rows come from the shared table, one for each item; its dense part is shared as a whole;
// its private part never leaves the device. Rows are flat: row i of n is at i · rowWidth.

/** One person's ratings on the task's scale (`Scale`), each item once. If a task has no ratings: 1 for chosen, 0 for others. */
export interface Ratings {
  readonly items: Int32Array;
  readonly values: Float32Array;
}

/** How the loss over a device's ratings changes with each of the three parts. */
export interface Gradients {
  readonly loss: number;
  readonly rows: Float32Array; // (n, rowWidth), in the order of the ratings
  readonly dense: Float32Array;
  readonly private: Float32Array;
}

export interface Model {
  readonly rowWidth: number;
  readonly denseSize: number;
  readonly privateSize: number;
  /** Return the private part of a new device; `normal` draws from the standard normal distribution. */
  firstPrivate(normal: () => number): Float32Array;
  /** Return the loss over the ratings and its gradients; row i belongs to `ratings.items[i]`. */
  gradients(rows: Float32Array, dense: Float32Array, own: Float32Array, ratings: Ratings): Gradients;
  /** Return a score for each item, larger for what the person likes better. */
  scores(rows: Float32Array, dense: Float32Array, own: Float32Array, items: Int32Array): Float32Array;
  /** Return the private part fitted to these rows, if the model can do so; otherwise Adam updates it in each round. */
  fitPrivate?(rows: Float32Array, dense: Float32Array, own: Float32Array, ratings: Ratings): Float32Array;
}
