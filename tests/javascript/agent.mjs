// A client of examples/javascript that does what the lines of its input say, and tells what comes.
//
// Each line is a call, `{id, call, args}`; each of the output an answer, or `{event, data}`.

import { createInterface } from "node:readline";
import { Client } from "./palio.mjs";
import { checksum, Decoder, Encoder } from "./wire.mjs";

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// Values that JSON does not have, as objects with one key.
const plain = (value) => {
  if (typeof value === "bigint") return { int64: String(value) };
  if (value instanceof Date) return { timestamp: value.toISOString() };
  if (value instanceof Uint8Array) return { binary: Buffer.from(value).toString("hex") };
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
  return value;
};
const rich = (value) => {
  if (value === null || typeof value !== "object") return value;
  if ("int64" in value) return BigInt(value.int64);
  if ("timestamp" in value) return new Date(value.timestamp);
  if ("binary" in value) return new Uint8Array(Buffer.from(value.binary, "hex"));
  if (Array.isArray(value)) return value.map(rich);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, rich(each)]));
};

let client;
const subscriptions = new Map(), events = new Map();

// A consumer that takes nothing until it is told to go on.
let flowing, resume;

async function pump(key, subscription) {
  try {
    for await (const each of subscription) {
      events.set(`${key} ${each.publisher} ${each.seq}`, each);
      await flowing;
      const { event, publisher, seq } = each;
      say({ event: "delivered", data: { key, publisher, seq, event: plain(event) } });
    }
    say({ event: "unsubscribed", data: { key } });
  } catch (error) {
    say({ event: "withdrawn", data: { key, kind: error.kind, message: error.message } });
  }
}

const calls = {
  async connect(urls, options) {
    client = await Client.connect(urls, options);
    for (const name of ["connected", "disconnected", "gaps"]) client.on(name, (data) => say({ event: name, data: plain(data ?? {}) }));
    client.on("ended", (error) => say({ event: "ended", data: { kind: error.kind, message: error.message } }));
    return client.publisher;
  },
  publish: (event, options) => client.publish(rich(event), options),
  async subscribe(filter, params, options) {
    const subscription = await client.subscribe(filter, params, options), { key } = subscription.request;
    subscriptions.set(key, subscription);
    pump(key, subscription);
    return key;
  },
  update: (key, values) => subscriptions.get(key).update(rich(values)),
  replace: (key, filter, values) => subscriptions.get(key).replace(filter, values),
  unsubscribe: (key, options) => subscriptions.get(key).unsubscribe(options),
  acknowledge: (key, publisher, seq) => subscriptions.get(key).acknowledge(events.get(`${key} ${publisher} ${seq}`)),
  pause() { flowing = new Promise((resolve) => { resume = resolve; }); },
  resume: () => resume(),
  settled: () => client.settled(),
  close: () => client.close(),
  // The messages of recorded frames.
  decode(frames) {
    const decoder = new Decoder();
    return frames.flatMap((frame) => [...decoder.feed(Buffer.from(frame, "hex"))].map(({ message }) => plain(message)));
  },
  // The same cut anywhere.
  decodeBytewise(frames) {
    const decoder = new Decoder(), bytes = [...Buffer.from(frames.join(""), "hex")];
    return bytes.flatMap((byte) => [...decoder.feed(Buffer.from([byte]))].map(({ message }) => plain(message)));
  },
  checksum: (body) => checksum(1, Buffer.from(body, "hex")),
  encode: (messages) => {
    const encoder = new Encoder();
    return Buffer.concat(messages.map((message) => encoder.encode(rich(message)))).toString("hex");
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  Promise.resolve().then(() => calls[call](...args)).then(
    (result) => say({ id, result: plain(result ?? null) }),
    (error) => say({ id, error: { kind: error.kind ?? error.name, message: error.message } }),
  );
}
process.exit(0);
