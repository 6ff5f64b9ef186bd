// Palio in web pages: publish events, and receive those that match a filter whose parameters change.
//
//     import { Broker } from "http://localhost:7480/palio.js";
//
//     const broker = new Broker("http://localhost:7480");
//     const cheap = broker.subscribe("price < :limit", { limit: 10 });
//     cheap.addEventListener("event", ({ detail }) => console.log(detail.symbol, detail.price));
//     await cheap.update({ limit: 20 });
//
// The broker has to list the page's origin in http.allowed_origins. There is no build step, and nothing
// else to load.

const RETRY_FIRST_MS = 500; // doubles up to RETRY_LAST_MS; each wait is half to all of it, so that
const RETRY_LAST_MS = 30_000; // the pages of a broker that restarts do not return at the same instant
const STABLE_MS = 5_000; // a connection that lasts so long ends the doubling
const IDLE_MS = 16_000; // then a connection is tested: pages do not see the broker's own pings
const DEAD_MS = 25_000; // then it counts as broken: after a sleep, a laptop has none that works
const LOOK_MS = 2_500;
const ACK_MS = 100; // the events of so long are acknowledged together
const MAX_QUEUED = 10_000; // events that wait for `for await`; beyond, the oldest are lost, as a gap

/** A refusal. `type` names the class of error, such as `ParseError`; `details` says where. */
export class PalioError extends Error {
  constructor({ type, message, ...details }, isFinal = true) {
    super(message);
    this.name = this.type = type;
    this.details = details;
    this.isFinal = isFinal; // the same would be refused again
  }
}

/** One broker, by the address of its HTTP port. */
export class Broker {
  constructor(url, { token = "" } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
  }

  /** Publish an event or several, objects of attributes or CloudEvents. Resolves with the receipt. */
  publish(events, { durable = false } = {}) {
    const batch = (Array.isArray(events) ? events : [events]).map(asCloudEvent);
    const query = durable ? `?durable=${durable}` : "";
    return this.call("POST", `/events${query}`, batch, "application/cloudevents-batch+json");
  }

  /**
   * Receive the events that match a filter. Options:
   * - `durable`: true to make a subscription that the broker keeps, or the `id` of an earlier one;
   * - `ack`: "auto" acknowledges durable events once listeners have run, "manual" leaves it to `ack`;
   * - `transport`: "websocket", or "sse" where a proxy lets no WebSocket through.
   */
  subscribe(filter, params = {}, options = {}) {
    return new Subscription(this, filter, params, options);
  }

  /** End a durable subscription for good. */
  remove(id) {
    return this.call("DELETE", `/subscriptions/${id}`);
  }

  /** Send a request, and return the JSON of its answer; a refusal rejects with a `PalioError`. */
  async call(method, path, body, type = "application/json") {
    const response = await this.fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": type },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    return response.status === 204 ? null : response.json();
  }

  async fetch(path, { headers, ...options }) {
    const shown = this.token ? { ...headers, authorization: `Bearer ${this.token}` } : headers;
    const response = await fetch(this.url + path, { ...options, headers: shown });
    if (response.ok) return response;
    const fallback = { type: "HTTPException", message: `the broker answered ${response.status}` };
    const { error = fallback } = await response.json().catch(() => ({}));
    throw new PalioError(error, response.status < 500 && response.status !== 408);
  }
}

/**
 * A subscription, which reconnects by itself. It dispatches:
 * - `event`: `detail` is the event, an object of its attributes;
 * - `gap`: `detail` says which events were lost; its `publisher` is "*" if nobody knows whose;
 * - `state`: `detail` is "connecting", "open", "waiting" or "closed";
 * - `error`: `detail` is the `PalioError` that ended it.
 * `for await (const event of subscription)` gives the events, too.
 */
export class Subscription extends EventTarget {
  constructor(broker, filter, params, { durable = false, ack = "auto", transport = "websocket" }) {
    super();
    this.filter = filter;
    this.params = { ...params };
    this.id = typeof durable === "string" ? durable : ""; // of a durable one
    this.state = "";
    this.error = null;
    this._broker = broker;
    this._durable = Boolean(durable);
    this._acksItself = this._durable && ack === "auto";
    this._isStream = transport === "sse";
    this._cursor = ""; // of the last event: the broker goes on behind it
    this._cursors = new WeakMap(); // by event, for `ack`
    this._before = new WeakMap(); // by durable event, the cursor before it, for `nack`
    this._acking = 0;
    this._changes = Promise.resolve(); // one after the other
    this._joined = null; // an update that waits for its turn: later ones join it
    this._pending = null; // the change that the broker has not answered
    this._tries = 0;
    this._openedAt = 0;
    this._link = null;
    this._retrying = 0;
    this._looking = setInterval(() => this._look(), LOOK_MS);
    this._online = () => this.state === "waiting" && this._connect();
    globalThis.addEventListener("online", this._online);
    this._connect();
  }

  /** Change parameters; resolves once the broker matches by them. Fast ones are sent together. */
  update(params) {
    if (this._joined) {
      Object.assign(this._joined.params, params);
    } else {
      const joined = (this._joined = { params: { ...params } });
      joined.done = this._change(() => {
        this._joined = null;
        return [{ update: joined.params }, this.filter, { ...this.params, ...joined.params }];
      });
    }
    return this._joined.done;
  }

  /** Change the filter; resolves once the broker matches by it. */
  replace(filter, params = {}) {
    this._joined = null; // what comes later is for the new filter
    return this._change(() => [{ replace: { filter, parameters: params } }, filter, { ...params }]);
  }

  /** Acknowledge a durable event, and all before it. */
  ack(event) {
    const cursor = this._cursors.get(event);
    if (this._durable && cursor) this._acknowledge(cursor);
  }

  /**
   * Have a durable event that is not acknowledged delivered again, and all after it, after a delay:
   * its position goes back to before the event. With `ack: "auto"`, call this in a listener.
   */
  nack(event, delayMs = 0) {
    const before = this._before.get(event);
    if (before === undefined || this.state === "closed") return;
    this._cursor = before;
    this._cursors = new WeakMap(); // what came after it comes again, as other objects
    this._before = new WeakMap();
    this._emit("nack", event);
    this._link?.abandon();
    this._state("waiting");
    clearTimeout(this._retrying);
    this._retrying = setTimeout(() => this._connect(), delayMs);
  }

  /** End it here. A durable subscription stays at the broker, where its events wait. */
  close() {
    this._end(null);
  }

  async *[Symbol.asyncIterator]() {
    const queue = [];
    let lost = 0;
    let wake = () => {};
    const received = ({ detail }) => {
      queue.push(detail);
      if (queue.length > MAX_QUEUED) lost += queue.splice(0, 1).length;
      wake();
    };
    const changed = () => wake();
    const rejected = ({ detail }) => queue.splice(Math.max(0, queue.indexOf(detail))); // these come again
    this.addEventListener("nack", rejected);
    this.addEventListener("event", received);
    this.addEventListener("state", changed);
    try {
      while (queue.length || this.state !== "closed") {
        if (lost) this._emit("gap", { publisher: "*", count: lost, reason: "the page was too slow" });
        lost = 0;
        if (queue.length) yield queue.shift();
        else await new Promise((resolve) => (wake = resolve));
      }
      if (this.error) throw this.error;
    } finally {
      this.removeEventListener("nack", rejected);
      this.removeEventListener("event", received);
      this.removeEventListener("state", changed);
    }
  }

  // --- changes ---

  _change(make) {
    const done = this._changes.then(async () => {
      const [command, filter, params] = make();
      if (this.state === "closed") throw closed();
      if (this._durable) {
        await this._put(filter, params);
      } else {
        await this._ask({ command, filter, params });
      }
      this.filter = filter;
      this.params = params;
    });
    this._changes = done.catch(() => {});
    return done;
  }

  /** Change what the broker keeps, for all connections now and later; again until it has answered. */
  async _put(filter, params) {
    for (;;) {
      try {
        await this._kept();
        await this._broker.call("PUT", `/subscriptions/${this.id}`, asRequest(filter, params));
        return;
      } catch (error) {
        if (finalOrNull(error) || this.state === "closed") throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_FIRST_MS));
      }
    }
  }

  /** Ask the broker for a change, again after each reconnection until it has answered. */
  _ask(change) {
    return new Promise((resolve, reject) => {
      this._pending = { ...change, resolve, reject };
      if (this._isStream) this._reopen();
      else this._link?.send(change.command);
    });
  }

  _answered(error) {
    const pending = this._pending;
    this._pending = null;
    if (error) pending?.reject(error);
    else pending?.resolve();
  }

  /** An event stream takes no commands: it is opened anew, from its cursor on. */
  _reopen() {
    this._link?.abandon();
    this._connect();
  }

  // --- called by connections ---

  _opened(cursor) {
    this._cursor ||= this._durable ? "" : cursor; // where it goes on if it breaks before any event
    this._openedAt = Date.now();
    this._state("open");
    if (this._isStream) this._answered(null);
    else if (this._pending) this._link.send(this._pending.command);
  }

  _received(document, cursor) {
    const isGap = document.type === "palio.gap";
    const event = isGap || document.type === "palio.event" ? document.data : document;
    if (cursor) {
      if (this._durable) this._before.set(event, this._cursor);
      this._cursor = cursor;
      this._cursors.set(event, cursor);
    }
    this._emit(isGap ? "gap" : "event", event);
    if (cursor && this._acksItself) {
      this._acking ||= setTimeout(() => {
        this._acking = 0;
        if (this._cursor) this._acknowledge(this._cursor);
      }, ACK_MS);
    }
  }

  /** The connection broke; with an error, the broker refused it. */
  _broken(error) {
    this._link = null;
    if (this.state === "closed") return;
    if (error && this._isStream && this._pending) {
      this._answered(error);
      this._connect(); // as before
      return;
    }
    if (error) {
      this._end(error);
      return;
    }
    if (this._openedAt && Date.now() - this._openedAt > STABLE_MS) this._tries = 0;
    this._openedAt = 0;
    const most = Math.min(RETRY_LAST_MS, RETRY_FIRST_MS * 2 ** this._tries++);
    this._state("waiting");
    this._retrying = setTimeout(() => this._connect(), most * (0.5 + Math.random() / 2));
  }

  // --- the connection ---

  async _connect() {
    clearTimeout(this._retrying);
    this._state("connecting");
    try {
      await this._kept();
    } catch (error) {
      this._broken(finalOrNull(error));
      return;
    }
    if (this.state === "closed" || this._link) return;
    this._link = (this._isStream ? openStream : openSocket)(this, this._broker, this._address());
  }

  /** Have the broker keep a durable subscription; once. */
  async _kept() {
    if (!this._durable || this.id) return;
    this._making ??= this._broker.call("POST", "/subscriptions", asRequest(this.filter, this.params));
    try {
      this.id = (await this._making).id;
    } finally {
      this._making = null;
    }
  }

  _address() {
    const query = new URLSearchParams(this._cursor ? { cursor: this._cursor } : {});
    if (this._durable) return `/subscriptions/${this.id}/events?${query}`;
    const { filter, params } = (this._isStream && this._pending) || this;
    query.set("filter", filter);
    for (const [name, value] of Object.entries(params)) query.set(`param.${name}`, asLiteral(value));
    return `/events?${query}`;
  }

  _look() {
    const idle = this._link ? Date.now() - this._link.heardAt : 0;
    if (idle > DEAD_MS) this._link.abort();
    else if (idle > IDLE_MS) this._link.test();
  }

  /** Acknowledge up to a cursor. If that is lost, the next connection begins from the cursor. */
  _acknowledge(cursor) {
    const path = `/subscriptions/${this.id}/acknowledge`;
    this._broker.call("POST", path, { cursor }).catch(() => {});
  }

  _end(error) {
    if (this.state === "closed") return;
    this.error = error;
    clearInterval(this._looking);
    clearTimeout(this._retrying);
    globalThis.removeEventListener("online", this._online);
    this._state("closed");
    this._link?.abort();
    this._answered(error ?? closed());
    if (error) this._emit("error", error);
  }

  _state(state) {
    if (this.state === state || this.state === "closed") return;
    this.state = state;
    this._emit("state", state);
  }

  _emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

// --- two kinds of connection ---

/** A connection; `_broken` of its subscription is called once, unless it is abandoned. */
class Link {
  constructor(subscription) {
    this.heardAt = Date.now();
    this._subscription = subscription;
  }

  over(error) {
    const subscription = this._subscription;
    this._subscription = null;
    subscription?._broken(error);
  }

  abort() {
    this.over(null);
    this.quit();
  }

  abandon() {
    this._subscription._link = null;
    this._subscription = null;
    this.quit();
  }

  test() {}
}

function openSocket(subscription, broker, address) {
  const token = broker.token ? `&access_token=${encodeURIComponent(broker.token)}` : "";
  const url = broker.url.replace(/^http/, "ws") + address + token;
  const socket = new WebSocket(url, "cloudevents.json");
  const link = new Link(subscription);
  link.send = (command) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(command));
  link.test = () => link.send({ update: {}, id: "test" }); // changes nothing, and is answered
  link.quit = () => socket.close();
  socket.onopen = link.test;
  socket.onmessage = ({ data }) => {
    if (!link._subscription) return;
    link.heardAt = Date.now();
    const { paliocursor: cursor, ...document } = JSON.parse(data);
    if (document.specversion) subscription._received(document, cursor);
    else if (document.id !== "test") subscription._answered(document.error && new PalioError(document.error));
    else if (subscription.state !== "open") subscription._opened(document.opened);
  };
  socket.onclose = ({ code, reason }) =>
    link.over(code === 1008 ? new PalioError({ type: "Refused", message: reason }) : null);
  return link;
}

function openStream(subscription, broker, address) {
  const controller = new AbortController();
  const link = new Link(subscription);
  link.quit = () => controller.abort();
  readStream(link, broker, address, controller.signal).then(
    () => link.over(null),
    (error) => link.over(finalOrNull(error)),
  );
  return link;
}

/** Read server-sent events. `EventSource` would say neither why it was refused nor send a token. */
async function readStream(link, broker, address, signal) {
  const headers = { accept: "text/event-stream" };
  const response = await broker.fetch(address, { headers, signal, cache: "no-store" });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || !link._subscription) return;
    link.heardAt = Date.now();
    const frames = (text + value).split("\n\n");
    text = frames.pop();
    for (const frame of frames) {
      const lines = frame.split("\n").map((line) => [line.split(":", 1)[0], line]);
      const fields = Object.fromEntries(lines.map(([name, line]) => [name, line.slice(name.length + 2)]));
      if (fields.event === "ended") throw new PalioError(JSON.parse(fields.data));
      if (link._subscription?.state === "connecting") link._subscription._opened(fields.id);
      if (fields.data) link._subscription?._received(JSON.parse(fields.data), fields.id);
    }
  }
}

// --- values ---

function asCloudEvent(event) {
  if (event.specversion) return event;
  const id = `${Date.now()}-${Math.random().toString(36).slice(2)}`;
  return { specversion: "1.0", id, source: "/page", type: "palio.event", data: event };
}

function asRequest(filter, parameters) {
  return { filters: [{ palio: { filter, parameters } }], config: { durable: true, acknowledge: "explicit" } };
}

/** A value as a query has it: a text that looks like a number or a literal is quoted. */
function asLiteral(value) {
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : JSON.stringify(value);
}

function finalOrNull(error) {
  return error instanceof PalioError && error.isFinal ? error : null;
}

function closed() {
  return new PalioError({ type: "Closed", message: "the subscription is closed" });
}
