// Every error that the package raises, as one tree. No message contains an item, a rating, a key or a token.
//
// SecEmbError
// ├── errors of the protocol   RingError, LayoutError, SpecError, MessageError, RowTagError, …
// └── DeviceError              errors that a device's owner or app can act on

import type { Misconduct } from "./home/detections.js";

export class SecEmbError extends Error {
  override name = "SecEmbError";
}

// Of the protocol. Names and meanings are those of docs/reference/protocol.md, section 15.

export class RingError extends SecEmbError {
  override name = "RingError";
}
export class NotFiniteError extends RingError {
  override name = "NotFiniteError";
}
export class OutOfRangeError extends RingError {
  override name = "OutOfRangeError";
}
export class OverflowBudgetError extends RingError {
  override name = "OverflowBudgetError";
}
export class LayoutError extends SecEmbError {
  override name = "LayoutError";
}
export class PathSpentError extends SecEmbError {
  override name = "PathSpentError";
}
export class SessionError extends SecEmbError {
  override name = "SessionError";
}
export class SpecError extends SecEmbError {
  override name = "SpecError";
}
export class CatalogueError extends SecEmbError {
  override name = "CatalogueError";
}
export class MacError extends SecEmbError {
  override name = "MacError";
}
export class RowTagError extends SecEmbError {
  override name = "RowTagError";
}
export class MessageError extends SecEmbError {
  override name = "MessageError";
}
export class LengthError extends MessageError {
  override name = "LengthError";
}
export class VersionError extends MessageError {
  override name = "VersionError";
}
export class KindError extends MessageError {
  override name = "KindError";
}
export class BindingError extends MessageError {
  override name = "BindingError";
}
export class EncodingError extends MessageError {
  override name = "EncodingError";
}
export class BoxError extends MessageError {
  override name = "BoxError";
}
export class AlteredError extends MessageError {
  override name = "AlteredError";
}
export class OtherRoundError extends MessageError {
  override name = "OtherRoundError";
}
export class RelayKeyError extends MessageError {
  override name = "RelayKeyError";
}

// Of a device.

export class DeviceError extends SecEmbError {
  override name = "DeviceError";
  /** The protocol violation by a server, if there was one. */
  readonly noticed: Misconduct | undefined;
  constructor(words: string, noticed?: Misconduct) {
    super(words);
    this.noticed = noticed;
  }
}
export class EnrolmentError extends DeviceError {
  override name = "EnrolmentError";
}
export class TokenExpiredError extends EnrolmentError {
  override name = "TokenExpiredError";
}
export class TokenRevokedError extends EnrolmentError {
  override name = "TokenRevokedError";
}
export class PinError extends DeviceError {
  override name = "PinError";
}
export class AddressError extends DeviceError {
  override name = "AddressError";
}
export class PolicyError extends DeviceError {
  override name = "PolicyError";
}
export class RatingError extends DeviceError {
  override name = "RatingError";
}
export class MisfitError extends DeviceError {
  override name = "MisfitError";
}
export class ModelError extends DeviceError {
  override name = "ModelError";
}
export class NotFiniteLossError extends ModelError {
  override name = "NotFiniteLossError";
}
export class PartError extends ModelError {
  override name = "PartError";
}
export class CopyError extends DeviceError {
  override name = "CopyError";
}
export class HomeError extends DeviceError {
  override name = "HomeError";
}
export class HomeInUseError extends HomeError {
  override name = "HomeInUseError";
}
export class HomeKeyError extends HomeError {
  override name = "HomeKeyError";
}
export class DamagedError extends HomeError {
  override name = "DamagedError";
}
export class ForgottenError extends HomeError {
  override name = "ForgottenError";
}

/** A server does not fulfil a request. `seconds` is the time until a retry, if the server gave one. */
export class ExchangeError extends DeviceError {
  override name = "ExchangeError";
  readonly seconds: number | undefined;
  constructor(words: string, seconds?: number, noticed?: Misconduct) {
    super(words, noticed);
    this.seconds = seconds;
  }
}
export class UnavailableError extends ExchangeError {
  override name = "UnavailableError";
}
export class EndedError extends ExchangeError {
  override name = "EndedError";
}
export class GoneError extends ExchangeError {
  override name = "GoneError";
}
export class RoundFullError extends GoneError {
  override name = "RoundFullError";
}
export class OutdatedKeyError extends ExchangeError {
  override name = "OutdatedKeyError";
}
export class ConflictError extends ExchangeError {
  override name = "ConflictError";
}
export class RefusedError extends ExchangeError {
  override name = "RefusedError";
}
