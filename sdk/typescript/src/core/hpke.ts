// HPKE (RFC 9180) with the suite of the relayed transport: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// AES-128-GCM, single shot, no additional data.

import { gcm } from "@noble/ciphers/aes.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { expand, extract } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";

import { ascii, concat, type Bytes } from "./bytes.js";

const KEM_SUITE = concat(ascii("KEM"), Uint8Array.of(0, 0x20));
const SUITE = concat(ascii("HPKE"), Uint8Array.of(0, 0x20, 0, 1, 0, 1));
const EMPTY: Bytes = new Uint8Array(0);
export const BOX_OVERHEAD = 32 + 16;

/** Return the encapsulated key and the ciphertext with its tag; `ephemeral` is 32 fresh random bytes. */
export function encryptBox(publicKey: Bytes, info: Bytes, content: Bytes, ephemeral: Bytes): Bytes {
  const enclosed = x25519.getPublicKey(ephemeral);
  const shared = sharedSecret(x25519.getSharedSecret(ephemeral, publicKey), enclosed, publicKey);
  return concat(enclosed, cipherOf(shared, info).encrypt(content));
}

/** Return the content of a box; raises if it was altered or made for another purpose. */
export function decryptBox(privateKey: Bytes, info: Bytes, box: Bytes): Bytes {
  const enclosed = box.subarray(0, 32);
  const shared = sharedSecret(x25519.getSharedSecret(privateKey, enclosed), enclosed, x25519.getPublicKey(privateKey));
  return cipherOf(shared, info).decrypt(box.subarray(32));
}

function sharedSecret(exchanged: Bytes, enclosed: Bytes, publicKey: Bytes): Bytes {
  const key = labeledExtract(KEM_SUITE, EMPTY, "eae_prk", exchanged);
  return labeledExpand(KEM_SUITE, key, "shared_secret", concat(enclosed, publicKey), 32);
}

function cipherOf(shared: Bytes, info: Bytes): ReturnType<typeof gcm> {
  const named = labeledExtract(SUITE, EMPTY, "psk_id_hash", EMPTY);
  const context = concat(Uint8Array.of(0), named, labeledExtract(SUITE, EMPTY, "info_hash", info));
  const secret = labeledExtract(SUITE, shared, "secret", EMPTY);
  return gcm(labeledExpand(SUITE, secret, "key", context, 16), labeledExpand(SUITE, secret, "base_nonce", context, 12));
}

function labeledExtract(suite: Bytes, salt: Bytes, label: string, input: Bytes): Bytes {
  return extract(sha256, concat(ascii("HPKE-v1"), suite, ascii(label), input), salt);
}

function labeledExpand(suite: Bytes, key: Bytes, label: string, info: Bytes, length: number): Bytes {
  return expand(sha256, key, concat(Uint8Array.of(0, length), ascii("HPKE-v1"), suite, ascii(label), info), length);
}
