// @secemb/device: what an app imports. Node's files are in @secemb/device/node.

export { Device, type Opening } from "./device.js";
export type { Policy } from "./context.js";
export type { Outcome } from "./round/contribute.js";
export type { Recommendation } from "./recommend/rank.js";
export type { Catalogue } from "./recommend/catalogue.js";
export type { Receipt } from "./home/receipts.js";
export type { Detection } from "./home/detections.js";
export type { Storage } from "./home/storage.js";
export { IndexedDbStorage } from "./home/indexed-db.js";
export { AsyncStorage, type KeyValueStore } from "./home/async-storage.js";
export { MatrixFactorisation } from "./models/factorisation.js";
export type { Gradients, Model, Ratings } from "./models/model.js";
export { secureBytes, type RandomBytes } from "./core/random.js";
export * from "./errors.js";
