// A session's holds: secrets that a device shares with one server but not the other, and values derived from them.

import { Aes } from "./aes.js";
import { sha256, type Bytes } from "./bytes.js";
import type { Label, Purpose } from "./labels.js";

export const MARK_BYTES = 16;

/** Return the secret that the device shares with the recipient of this KEYS message. */
export function holdOf(keys: Bytes): Bytes {
  return sha256(keys);
}

/** Return the MAC that proves to a server that the upload is from the device that made the keys. */
export function uploadMac(label: Label, hold: Bytes, upload: Bytes): Bytes {
  return mark(label, "upload/proof", hold, sha256(upload));
}

/** Return the mark that proves to the device that server 1 holds the message with this SHA-256. */
export function receiptOf(label: Label, hold: Bytes, digest: Bytes): Bytes {
  return mark(label, "relay/receipt", hold, digest);
}

/** Return the mark that proves to the device that server 1 publishes the dense part with this SHA-256. */
export function denseMark(label: Label, hold: Bytes, digest: Bytes): Bytes {
  return mark(label, "relay/dense", hold, digest);
}

/** Return the words with the mask of server 1's answer added or removed, which is the same operation. */
export function mask(label: Label, hold: Bytes, words: Uint32Array): Uint32Array {
  const stream = new Aes(label.key("stream/mask", hold)).words(words.length);
  return words.map((word, at) => word ^ stream[at]!);
}

function mark(label: Label, purpose: Purpose, hold: Bytes, digest: Bytes): Bytes {
  return label.derive(purpose, hold, digest).slice(0, MARK_BYTES);
}
