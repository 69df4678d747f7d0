// @secemb/device: what an app imports.

export * from "./errors.js";
export { RoundSpec, TaskSpec } from "./core/spec.js";
export { DeviceSession } from "./core/session.js";
export { secureBytes, type RandomBytes } from "./core/random.js";
