// The stored form of a record: one header line, then its bytes, plain or encrypted.
//
//     secemb-home 1 <name> plain <SHA-256 of the rest>
//     secemb-home 1 <name> sealed <check of the key>        then 24 bytes of nonce, and XChaCha20-Poly1305 over the record
//
// The first line is authenticated with the encrypted record, so that one record cannot be passed off as another.

import { xchacha20poly1305 } from "@noble/ciphers/chacha.js";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 as hash } from "@noble/hashes/sha2.js";

import { ascii, concat, hex, sha256, text, type Bytes } from "../core/bytes.js";
import { secureBytes } from "../core/random.js";
import { DamagedError, HomeError, HomeKeyError } from "../errors.js";

const FORMAT = "1";
const NONCE_BYTES = 24;
const LONGEST_LINE = 200;

export class RecordCipher {
  readonly #key: Bytes | undefined;
  readonly #check: string;

  constructor(key?: Bytes) {
    if (key !== undefined && key.length !== 32) throw new HomeKeyError("a home's key is 32 random bytes");
    this.#key = key;
    this.#check = key === undefined ? "" : hex(hmac(hash, key, ascii("secemb home key check"))).slice(0, 16);
  }

  encode(name: string, body: Bytes): Bytes {
    if (this.#key === undefined) return concat(line(name, "plain", hex(sha256(body))), body);
    const head = line(name, "sealed", this.#check);
    const nonce = secureBytes(NONCE_BYTES);
    return concat(head, nonce, xchacha20poly1305(this.#key, nonce, head).encrypt(body));
  }

  decode(name: string, data: Bytes): Bytes {
    const end = data.subarray(0, LONGEST_LINE).indexOf(10);
    const words = end < 0 ? [] : text(data.subarray(0, end)).split(" ");
    const body = data.subarray(end + 1);
    if (words.length !== 5 || words[0] !== "secemb-home" || words[2] !== name) throw damaged(name);
    if (words[1] !== FORMAT) throw new HomeError("this home was written by a newer version of the SDK; update the app");
    if (words[3] === "plain") {
      if (this.#key !== undefined) throw new HomeKeyError("this home is not encrypted; open it without a key, or use a new home with one");
      if (hex(sha256(body)) !== words[4]) throw damaged(name);
      return body;
    }
    if (this.#key === undefined) throw new HomeKeyError("this home is encrypted; open it with its key");
    if (words[4] !== this.#check) throw new HomeKeyError("this is not the key that the home is encrypted with");
    try {
      return xchacha20poly1305(this.#key, body.slice(0, NONCE_BYTES), data.slice(0, end + 1)).decrypt(body.subarray(NONCE_BYTES));
    } catch {
      throw damaged(name);
    }
  }
}

function line(name: string, how: string, check: string): Bytes {
  return ascii(`secemb-home ${FORMAT} ${name} ${how} ${check}\n`);
}

function damaged(name: string): DamagedError {
  return new DamagedError(`the record '${name}' of the home is corrupted; call forget(), or use a new home`);
}
