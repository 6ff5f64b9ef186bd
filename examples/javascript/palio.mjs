// A client of Palio's wire protocol (docs/reference/wire.md) in JavaScript, for Node.js.

import { randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import net from "node:net";
import { DamagedFrame, Decoder, Encoder } from "./wire.mjs";

const VERSION = 1; // limits.PROTOCOL_VERSION
const UNSEQUENCED = new Set(["Hello", "Challenge", "Welcome", "Bye", "StreamAck", "Ping", "Pong"]);
const FINAL = new Set(["NotAuthenticated", "NotPermitted", "IllegalMessage", "InvalidInput"]);
const ACK_BYTES = 256 << 10, ACK_MS = 10; // limits.ACK_EVERY_BYTES, ACK_DELAY_S
const SILENT_HEARTBEATS = 3, DAMAGE_TRIES = 10; // limits.SILENT_BEATS, DAMAGE_TRIES
const BACKOFF_MS = [50, 5000], GREETING_MS = 5000; // limits.BACKOFF_MIN_S, BACKOFF_MAX_S, DIAL_S
const MAX_QUEUED = 10_000; // events that wait for the application before acknowledgements are held back

/** An error that a broker reports: `kind` is the name of a class of palio.errors. */
export class PalioError extends Error {
  constructor({ kind, message, details = {} }) {
    super(message);
    Object.assign(this, { kind, details });
  }
}

/** The events of one subscription: an async iterator. */
export class Subscription {
  queue = [];
  entry = 0; // the last entry that has come whole
  wake = () => {};

  constructor(client, request) {
    Object.assign(this, { client, request }); // the request as it is to be in the next session
  }

  update(params) {
    Object.assign(this.request.values, params);
    return this.client.ask({ type: "Update", key: this.request.key, values: params });
  }

  replace(filter, values = {}) {
    Object.assign(this.request, { filter, values });
    return this.client.ask({ type: "Replace", key: this.request.key, filter, values });
  }

  /** Unsubscribe. A durable subscription waits for its owner, unless `delete` ends it. */
  async unsubscribe({ delete: forget = false } = {}) {
    await this.client.ask({ type: "Unsubscribe", key: this.request.key, forget });
    this.end();
  }

  /** Acknowledge an event of a durable subscription and all before it. */
  acknowledge(event) { this.client.send({ type: "Acknowledge", key: this.request.key, entry: event.entry }); }

  deliver(message) {
    const { publisher, columns, rows } = message.parcel, before = this.entry;
    if (message.entry) this.entry = Number(message.entry);
    rows.forEach((values, at) => {
      const attributes = Object.fromEntries(columns.map(([name], place) => [name, values[place]]).filter(([, value]) => value !== null));
      const { $seq: seq, $time: time, ...event } = attributes;
      // An entry is acknowledged with the last of its events.
      this.queue.push({ event, publisher, seq: Number(seq), time, entry: at === rows.length - 1 ? this.entry : before });
    });
    this.wake();
  }

  end(error = null) {
    this.client.subscriptions.delete(this.request.key);
    this.over = { error };
    this.wake();
  }

  async * [Symbol.asyncIterator]() {
    for (;;) {
      if (this.queue.length) {
        yield this.queue.shift();
        this.client.acknowledgeSoon();
      } else if (this.over) {
        if (this.over.error) throw this.over.error;
        return;
      } else await new Promise((resolve) => { this.wake = resolve; });
    }
  }
}

/** A session with a broker. Emits `connected`, `disconnected`, `gaps` and `ended`. */
export class Client extends EventEmitter {
  /** Connect to the first of these addresses (`palio://host:port`) that answers. */
  static connect(urls, { name = "javascript", token = "" } = {}) {
    const client = new Client();
    client.urls = [urls].flat();
    client.hello = { type: "Hello", role: "client", name, version: VERSION, token, incarnation: randomUUID(), plain: true };
    return new Promise((resolve, reject) => {
      client.opening = { resolve: () => resolve(client), reject, untried: client.urls.length };
      client.dial();
    });
  }

  session = "";
  sent = 0; received = 0; acknowledged = 0; // sequenced messages
  unacknowledged = []; // messages to send again if the connection breaks
  requests = new Map(); published = new Map(); // what is not answered, by id and by number
  subscriptions = new Map(); // by key
  nextId = 1; nextKey = 1; nextSeq = 1;
  epoch = 0; // the number of this session of the client
  damages = 0; unsaidBytes = 0;
  pauseMs = BACKOFF_MS[0];

  /** Publish one event; `durable` is false, true or "home". */
  publish(event, { durable = false } = {}) {
    return new Promise((resolve, reject) => {
      const seq = this.nextSeq++;
      const message = { type: "Publish", parcel: { publisher: "", event }, first_seq: seq, durable };
      const level = { false: "memory", true: "durable", home: "home" }[durable];
      new Encoder().encode(message); // refuses what cannot be sent before it counts
      this.published.set(seq, { message, level, resolve, reject });
      this.send(message);
    });
  }

  /** Subscribe; one subscription of a client may be without a `durableName`. */
  async subscribe(filter, params = {}, { durableName: durable = "", retention: lease_s = 0 } = {}) {
    const live = [...this.subscriptions.values()].some(({ request }) => !request.durable);
    if (!durable && live) throw new Error("a second live subscription; connect another client for it");
    const request = { type: "Subscribe", key: this.nextKey++, filter, values: { ...params }, durable, lease_s };
    const subscription = new Subscription(this, request);
    this.subscriptions.set(request.key, subscription);
    return this.ask({ ...request, session_epoch: this.epoch }).then(
      () => subscription, (error) => { subscription.end(); throw error; });
  }

  /** Wait until what was asked for is in force at all brokers. */
  settled() { return this.ask({ type: "Settle" }); }

  /** Close the session: the broker keeps only what is durable. */
  close() {
    if (this.isUp) this.write({ type: "Bye", code: "closed" });
    this.end(new PalioError({ kind: "Closed", message: "the client is closed; connect again" }));
  }

  ask(request) {
    return new Promise((resolve, reject) => {
      this.requests.set(this.nextId, { request, resolve, reject });
      this.send({ ...request, id: this.nextId++ });
    });
  }

  // --- the session ---

  send(message) {
    if (this.error) throw this.error;
    this.sent += 1;
    this.unacknowledged.push(message);
    if (this.isUp) this.write(message);
  }

  write(message) { this.socket.write(this.encoder.encode(message)); }

  welcomed(message) {
    this.isUp = true;
    this.damages = message.resumed ? this.damages : 0;
    this.pauseMs = BACKOFF_MS[0];
    this.session = message.session;
    this.publisher = message.publisher;
    this.watch(message.heartbeat_s * 1000);
    if (message.resumed) {
      this.forget(Number(message.received));
      this.acknowledged = this.received; // `Hello` carried it
      this.unacknowledged.forEach((each) => this.write(each));
    } else this.renew();
    this.opening?.resolve();
    this.opening = null;
    this.emit("connected", { resumed: message.resumed });
  }

  /** Begin a new session: declare everything in force, and repeat unanswered requests. */
  renew() {
    this.sent = this.received = this.acknowledged = 0;
    this.unacknowledged = [];
    this.epoch += 1;
    const open = [...this.requests.values()], changed = new Set(["Subscribe", "Replace", "Update"]);
    this.requests.clear();
    for (const [key, subscription] of this.subscriptions) {
      subscription.entry = 0; // its queue may come again, under other numbers
      const waiting = open.filter(({ request }) => request.key === key && changed.has(request.type));
      this.ask({ ...subscription.request, session_epoch: this.epoch }).then(
        () => waiting.forEach(({ resolve }) => resolve()),
        (error) => { waiting.forEach(({ reject }) => reject(error)); subscription.end(error); },
      );
    }
    for (const { request, resolve, reject } of open) {
      if (!changed.has(request.type)) this.ask(request).then(resolve, reject);
    }
    for (const [seq, { message, reject }] of this.published) {
      if (message.durable || this.epoch === 1) this.send(message);
      else {
        this.published.delete(seq);
        reject(new PalioError({ kind: "Unreachable", message: "the session was lost before the broker answered" }));
      }
    }
  }

  take(message, size) {
    if (!UNSEQUENCED.has(message.type)) {
      this.receive(message);
      this.received += 1;
      this.damages = 0;
      this.unsaidBytes += size;
      if (this.unsaidBytes >= ACK_BYTES) this.acknowledgeNow();
      this.acknowledgeSoon();
    } else if (message.type === "Welcome") this.welcomed(message);
    else if (message.type === "StreamAck") this.forget(Number(message.count));
    else if (message.type === "Ping") this.write({ type: "Pong" });
    else if (message.type === "Bye") this.dismissed(message);
  }

  receive(message) {
    const request = this.requests.get(Number(message.id));
    if (message.type === "Deliver") {
      const live = [...this.subscriptions.values()].find(({ request }) => !request.durable);
      const subscription = (message.key ?? -1) === -1 ? live : this.subscriptions.get(Number(message.key));
      subscription?.deliver(message);
    } else if (message.type === "Accepted" || message.type === "Refused") this.answered(message);
    else if (message.type === "Gaps") this.emit("gaps", message.gaps);
    else if (message.type === "Redirect") this.urls = [...new Set([...message.urls, ...this.urls])];
    else if (message.type === "Ended") {
      message.keys.forEach((key) => this.subscriptions.get(Number(key))?.end(new PalioError(message.failure)));
    } else if (request) {
      this.requests.delete(Number(message.id));
      if (message.type === "Failed") request.reject(new PalioError(message.failure));
      else request.resolve(message.data ?? message);
    }
  }

  answered(message) {
    for (const [seq, { level, resolve, reject }] of this.published) {
      const isRefused = message.type === "Refused" && seq >= message.first_seq && seq <= message.last_seq;
      if (isRefused) reject(new PalioError(message.failure));
      else if (message.level === level && seq <= message.seq) resolve({ seq, level });
      else continue;
      this.published.delete(seq);
    }
  }

  forget(count) { this.unacknowledged.splice(0, this.unacknowledged.length - (this.sent - count)); }

  acknowledgeSoon() { this.ackTimer ??= setTimeout(() => this.acknowledgeNow(), ACK_MS); }

  acknowledgeNow() {
    this.ackTimer = clearTimeout(this.ackTimer);
    const queued = [...this.subscriptions.values()].reduce((sum, { queue }) => sum + queue.length, 0);
    if (!this.isUp || this.acknowledged === this.received || queued > MAX_QUEUED) return;
    [this.acknowledged, this.unsaidBytes] = [this.received, 0];
    this.write({ type: "StreamAck", count: this.received });
  }

  // --- the connection ---

  dial() {
    const { hostname, port, protocol } = new URL(this.urls[0]);
    if (protocol !== "palio:") return this.end(new Error(`${this.urls[0]} is no palio:// address`));
    const socket = this.socket = net.connect({ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port), noDelay: true });
    const decoder = new Decoder();
    this.encoder = new Encoder();
    this.timer = setTimeout(() => socket.destroy(new Error("no answer in time")), GREETING_MS);
    socket.on("connect", () => this.write({ ...this.hello, session: this.session, received: this.session ? this.received : 0 }));
    socket.on("data", (data) => {
      this.heardAt = Date.now();
      try {
        for (const { message, size } of decoder.feed(data)) if (this.socket === socket) this.take(message, size);
      } catch (error) {
        const isAccident = error instanceof DamagedFrame && (this.damages += 1) < DAMAGE_TRIES;
        if (isAccident) socket.destroy(error);
        else this.end(error);
      }
    });
    socket.on("error", (error) => { this.reason = error; });
    socket.on("close", () => this.socket === socket && this.lost());
  }

  lost() {
    clearInterval(this.timer);
    if (this.isUp) this.emit("disconnected");
    this.isUp = false;
    this.urls.push(this.urls.shift());
    if (this.opening && --this.opening.untried > 0) this.dial();
    else if (this.opening) this.end(this.reason ?? new Error("the broker closed the connection"));
    else this.timer = setTimeout(() => this.dial(), this.pauseMs * (0.5 + Math.random()));
    this.pauseMs = Math.min(2 * this.pauseMs, BACKOFF_MS[1]);
  }

  watch(heartbeatMs) {
    clearTimeout(this.timer);
    this.timer = setInterval(() => {
      const silentMs = Date.now() - this.heardAt;
      if (silentMs >= SILENT_HEARTBEATS * heartbeatMs) this.socket.destroy(new Error("heartbeat timeout"));
      else if (silentMs >= heartbeatMs) this.write({ type: "Ping" });
    }, heartbeatMs);
  }

  dismissed({ code, reason }) {
    this.reason = new PalioError({ kind: code, message: reason || code });
    if (FINAL.has(code)) this.end(this.reason);
    else this.socket.destroy();
  }

  end(error) {
    if (this.error) return;
    this.error = error;
    this.isUp = false;
    [this.timer, this.ackTimer].forEach(clearTimeout);
    this.socket?.end();
    this.socket = null;
    this.opening?.reject(error);
    for (const { reject } of [...this.requests.values(), ...this.published.values()]) reject(error);
    for (const subscription of this.subscriptions.values()) subscription.end(error);
    this.emit("ended", error);
  }
}
