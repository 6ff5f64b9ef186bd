// Frames of Palio's wire protocol (docs/reference/wire.md): bytes to messages and back.
//
// int64 is a bigint and float64 a number, timestamps are Dates, binary is a Uint8Array.

import * as msgpack from "@msgpack/msgpack";

const SCHEMA = 0, CONTROL = 1; // the kinds of frames; batches of Arrow never come to who says `plain` in its Hello
const HEAD_BYTES = 9;
const MAX_FRAME_BYTES = 2 * (16 << 20); // limits.MAX_FRAME_BYTES; values are larger than columns
const MAX_SCHEMAS = 1024; // limits.MAX_SHAPES

const pack = (value, options) => Buffer.from(msgpack.encode(value, { useBigInt64: true, ...options }));

export class DamagedFrame extends Error {}

// --- XXH3, 64 bits, with a seed ---

const MASK = (1n << 64n) - 1n;
const P32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn];
const P64 = [0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n];
const SECRET = Buffer.from(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
  "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
  "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
  "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
  "hex",
);

const u64 = (data, at) => data.readBigUInt64LE(at);
const wrap = (value) => BigInt.asUintN(64, value);
const rotl = (value, by) => wrap(value << by) | (value >> (64n - by));
const fold = (a, b) => { const product = a * b; return (product & MASK) ^ (product >> 64n); };
const swap = (value) => { const bytes = Buffer.alloc(8); bytes.writeBigUInt64LE(value); return bytes.readBigUInt64BE(); };

function avalanche(hash) {
  hash = wrap((hash ^ (hash >> 37n)) * 0x165667919e3779f9n);
  return hash ^ (hash >> 32n);
}

function avalanche64(hash) {
  hash = wrap((hash ^ (hash >> 33n)) * P64[1]);
  hash = wrap((hash ^ (hash >> 29n)) * P64[2]);
  return hash ^ (hash >> 32n);
}

function short(data, seed) {
  const length = data.length;
  if (length > 8) {
    const low = u64(data, 0) ^ wrap((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed);
    const high = u64(data, length - 8) ^ wrap((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed);
    return avalanche(wrap(BigInt(length) + swap(low) + high + fold(low, high)));
  }
  if (length > 3) {
    const mixed = seed ^ (swap(seed & 0xffffffffn) & (0xffffffffn << 32n));
    const flip = wrap((u64(SECRET, 8) ^ u64(SECRET, 16)) - mixed);
    let hash = (BigInt(data.readUInt32LE(length - 4)) + (BigInt(data.readUInt32LE(0)) << 32n)) ^ flip;
    hash = wrap((hash ^ rotl(hash, 49n) ^ rotl(hash, 24n)) * 0x9fb21c651e98df25n);
    hash = wrap((hash ^ wrap((hash >> 35n) + BigInt(length))) * 0x9fb21c651e98df25n);
    return hash ^ (hash >> 28n);
  }
  if (length > 0) {
    const joined = (data[0] << 16) | (data[length >> 1] << 24) | data[length - 1] | (length << 8);
    const flip = wrap(BigInt((SECRET.readUInt32LE(0) ^ SECRET.readUInt32LE(4)) >>> 0) + seed);
    return avalanche64(BigInt(joined >>> 0) ^ flip);
  }
  return avalanche64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64));
}

function middle(data, seed) {
  const length = data.length;
  const mix = (at, secret) => fold(
    u64(data, at) ^ wrap(u64(SECRET, secret) + seed), u64(data, at + 8) ^ wrap(u64(SECRET, secret + 8) - seed));
  let hash = wrap(BigInt(length) * P64[0]);
  if (length <= 128) {
    for (let pair = (length - 1) >> 5; pair >= 0; pair--) {
      hash += mix(16 * pair, 32 * pair) + mix(length - 16 * (pair + 1), 32 * pair + 16);
    }
    return avalanche(wrap(hash));
  }
  for (let round = 0; round < 8; round++) hash += mix(16 * round, 16 * round);
  hash = avalanche(wrap(hash));
  for (let round = 8; round < length >> 4; round++) hash += mix(16 * round, 16 * (round - 8) + 3);
  return avalanche(wrap(hash + mix(length - 16, 136 - 17)));
}

function long(data, seed) {
  const secret = Buffer.alloc(SECRET.length);
  for (let at = 0; at < secret.length; at += 16) {
    secret.writeBigUInt64LE(wrap(u64(SECRET, at) + seed), at);
    secret.writeBigUInt64LE(wrap(u64(SECRET, at + 8) - seed), at + 8);
  }
  const lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]];
  const stripe = (at, key) => {
    for (let lane = 0; lane < 8; lane++) {
      const value = u64(data, at + 8 * lane), keyed = value ^ u64(secret, key + 8 * lane);
      lanes[lane ^ 1] = wrap(lanes[lane ^ 1] + value);
      lanes[lane] = wrap(lanes[lane] + (keyed & 0xffffffffn) * (keyed >> 32n));
    }
  };
  const stripes = Math.floor((data.length - 1) / 64);
  for (let number = 0; number < stripes; number++) {
    stripe(64 * number, 8 * (number % 16));
    if (number % 16 === 15) {
      for (let lane = 0; lane < 8; lane++) {
        const value = lanes[lane] ^ (lanes[lane] >> 47n) ^ u64(secret, secret.length - 64 + 8 * lane);
        lanes[lane] = wrap(value * P32[0]);
      }
    }
  }
  stripe(data.length - 64, secret.length - 64 - 7);
  let hash = wrap(BigInt(data.length) * P64[0]);
  for (let pair = 0; pair < 4; pair++) {
    hash += fold(lanes[2 * pair] ^ u64(secret, 11 + 16 * pair), lanes[2 * pair + 1] ^ u64(secret, 19 + 16 * pair));
  }
  return avalanche(wrap(hash));
}

/** The checksum of a frame: the lower 32 bits of XXH3 of its body, with its length and kind as the seed. */
export function checksum(kind, body) {
  const seed = BigInt(body.length) * 256n + BigInt(kind);
  const hash = body.length <= 16 ? short : body.length <= 240 ? middle : long;
  return Number(hash(body, seed) & 0xffffffffn);
}

export function frame(kind, body) {
  return Buffer.concat([u32(body.length), Buffer.from([kind]), u32(checksum(kind, body)), body]);
}

// --- schemas: the letters of their types, and their names ---

const TYPES = { i: "int64", f: "float64", y: "binary", s: "utf8", b: "bool", t: "timestamp" };
const LETTERS = Object.fromEntries(Object.entries(TYPES).map(([letter, type]) => [type, letter]));
const STAMP = [["$seq", "int64"], ["$time", "timestamp"]]; // what a `$` at the end of the letters stands for
const u32 = (value) => { const bytes = Buffer.alloc(4); bytes.writeUInt32LE(value); return bytes; };

/** The description of a schema, a list of pairs of a name and a type. */
export function writeSchema(columns) {
  return pack([columns.map(([, type]) => LETTERS[type]).join(""), ...columns.map(([name]) => name)]);
}

export function readSchema(description) {
  const [letters, ...names] = msgpack.decode(description);
  const columns = names.map((name, at) => [name, TYPES[letters[at]]]);
  return letters.endsWith("$") ? [...columns, ...STAMP] : columns;
}

// --- messages ---

const PRIMITIVES = { bigint: "int64", number: "float64", string: "utf8", boolean: "bool" };

const typeOf = (value) => {
  const type = value instanceof Date ? "timestamp" : value instanceof Uint8Array ? "binary" : PRIMITIVES[typeof value];
  if (type) return type;
  throw new TypeError(`an attribute cannot be ${value}; use a bigint, number, string, boolean, Date or Uint8Array`);
};

/** Messages to bytes, for one connection. Events are given as `parcel: {publisher, event}`. */
export class Encoder {
  schemas = new Map();

  encode(message) {
    if (!message.parcel) return frame(CONTROL, pack(message));
    const { publisher, event } = message.parcel, values = Object.values(event);
    const columns = Object.keys(event).map((name, at) => [name, typeOf(values[at])]);
    const name = JSON.stringify(columns), buffers = [];
    if (!this.schemas.has(name)) {
      if (this.schemas.size >= MAX_SCHEMAS) this.schemas.clear();
      buffers.push(frame(SCHEMA, Buffer.concat([u32(this.schemas.size), writeSchema(columns)])));
      this.schemas.set(name, this.schemas.size);
    }
    // Every number is written as a float here, so that integers are bigints.
    const whole = { ...message, first_seq: BigInt(message.first_seq) };
    whole.parcel = [publisher, BigInt(this.schemas.get(name)), values];
    return Buffer.concat([...buffers, frame(CONTROL, pack(whole, { forceIntegerToFloat: true }))]);
  }
}

/** Bytes to messages, for one connection. Events come as `parcel: {publisher, columns, rows}`. */
export class Decoder {
  schemas = new Map();
  rest = Buffer.alloc(0);

  * feed(data) {
    this.rest = this.rest.length ? Buffer.concat([this.rest, data]) : data;
    while (this.rest.length >= HEAD_BYTES) {
      const size = this.rest.readUInt32LE(0), end = HEAD_BYTES + size;
      if (size > MAX_FRAME_BYTES) throw new DamagedFrame(`a frame of ${size} bytes exceeds ${MAX_FRAME_BYTES}`);
      if (this.rest.length < end) return;
      const kind = this.rest[4], body = this.rest.subarray(HEAD_BYTES, end);
      if (checksum(kind, body) !== this.rest.readUInt32LE(5)) throw new DamagedFrame("checksum mismatch");
      this.rest = this.rest.subarray(end);
      if (kind === SCHEMA) this.schemas.set(body.readUInt32LE(0), readSchema(body.subarray(4)));
      else yield { message: this.read(body), size };
    }
  }

  read(body) {
    const message = msgpack.decode(body, { useBigInt64: true });
    if (!message.parcel) return message;
    const [publisher, number, ...events] = message.parcel, columns = this.schemas.get(Number(number));
    const whole = (value, at) => (columns[at][1] === "int64" && value !== null ? BigInt(value) : value);
    return { ...message, parcel: { publisher, columns, rows: events.map((values) => values.map(whole)) } };
  }
}
