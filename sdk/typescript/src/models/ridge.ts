// Ridge regression: the best private part for the rows that a device has just read, if the score is linear in it.

const CAUTION = 0.5; // standard errors
const TINY = 1e-9;

/** Penalties of vectors and biases: `rating` counts once for each rating, the others once. */
export const PENALTIES = { rating: 0.05, person: 3.0, bias: 3.5 };

/** Inputs are (n, width), flat. */
export interface Problem {
  readonly inputs: Float64Array;
  readonly targets: Float64Array;
  readonly width: number;
  readonly diagonal: Float64Array;
}

/** Return the x that minimises |inputs · x − targets|² + Σ diagonal · x². */
export function solveRidge(problem: Problem): Float64Array {
  return product(inverse(normal(problem), problem.width), toRight(problem), problem.width);
}

/**
 * Return the ridge regression with the person's vector shrunk by its predictive value; the last coordinate is the bias.
 *
 * The vector's value is measured by predicting each rating from the others: the share of its prediction that leaves
 * the least squared error, less some standard errors. If the items do not share tastes, vectors would learn noise.
 */
export function solveCautiously(problem: Problem): Float64Array {
  const { inputs, targets, width, diagonal } = problem;
  const count = targets.length;
  const last = Float64Array.from({ length: count }, (_, at) => inputs[at * width + width - 1]!);
  const biases = leaveOneOut({ inputs: last, targets, width: 1, diagonal: diagonal.slice(width - 1) });
  const whole = leaveOneOut(problem);
  let [gains, squares, said2] = [0, 0, 0];
  for (let at = 0; at < count; at++) {
    const said = biases.left[at]! - whole.left[at]!; // by the vector, for a rating that it was not fitted to
    const gain = biases.left[at]! * said;
    gains += gain;
    squares += gain * gain;
    said2 += said * said;
  }
  const share = Math.min(1, Math.max(0, (gains - CAUTION * Math.sqrt(squares)) / Math.max(said2, TINY)));
  const found = whole.found.map((value) => share * value);
  found[width - 1] = found[width - 1]! + (1 - share) * biases.found[0]!;
  return found;
}

/** Return the best x, and each target's residual when x is fitted to the others, in closed form. */
function leaveOneOut(problem: Problem): { found: Float64Array; left: Float64Array } {
  const { inputs, targets, width } = problem;
  const inverted = inverse(normal(problem), width);
  const found = product(inverted, toRight(problem), width);
  const left = targets.map((target, at) => {
    const row = inputs.subarray(at * width, (at + 1) * width);
    const leverage = dot(product(inverted, row, width), row);
    return (target - dot(row, found)) / Math.max(1 - leverage, TINY);
  });
  return { found, left };
}

function normal({ inputs, targets, width, diagonal }: Problem): Float64Array {
  const found = new Float64Array(width * width);
  for (let at = 0; at < targets.length; at++) {
    for (let row = 0; row < width; row++) {
      const factor = inputs[at * width + row]!;
      for (let column = 0; column < width; column++) found[row * width + column]! += factor * inputs[at * width + column]!;
    }
  }
  for (let row = 0; row < width; row++) found[row * width + row]! += Math.max(diagonal[row]!, 1e-6); // never singular
  return found;
}

function toRight({ inputs, targets, width }: Problem): Float64Array {
  const found = new Float64Array(width);
  targets.forEach((target, at) => {
    for (let column = 0; column < width; column++) found[column]! += inputs[at * width + column]! * target;
  });
  return found;
}

/** Return the inverse of a symmetric positive definite matrix, by Gauss-Jordan elimination; no pivot can be small. */
function inverse(matrix: Float64Array, width: number): Float64Array {
  const left = matrix.slice();
  const right = new Float64Array(width * width);
  for (let row = 0; row < width; row++) right[row * width + row] = 1;
  for (let pivot = 0; pivot < width; pivot++) {
    const factor = 1 / left[pivot * width + pivot]!;
    for (let column = 0; column < width; column++) {
      left[pivot * width + column]! *= factor;
      right[pivot * width + column]! *= factor;
    }
    for (let row = 0; row < width; row++) {
      const own = left[row * width + pivot]!;
      if (row === pivot || own === 0) continue;
      for (let column = 0; column < width; column++) {
        left[row * width + column]! -= own * left[pivot * width + column]!;
        right[row * width + column]! -= own * right[pivot * width + column]!;
      }
    }
  }
  return right;
}

function product(matrix: Float64Array, vector: Float64Array, width: number): Float64Array {
  return Float64Array.from({ length: width }, (_, row) => dot(matrix.subarray(row * width, (row + 1) * width), vector));
}

function dot(left: Float64Array, right: Float64Array): number {
  let sum = 0;
  for (let at = 0; at < left.length; at++) sum += left[at]! * right[at]!;
  return sum;
}
