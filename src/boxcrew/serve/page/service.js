/** Requests to the service: with its token, with patience while it is busy, and with errors one can show. */

import { recall, remember } from "./memory.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Model} Model */

/** Lowest score that is asked for; the page filters by itself from there. */
export const LOWEST_SCORE = 0.01;
const TRIES = 6; // of a request to a service that is busy
const LONGEST_WAIT = 30; // seconds between two tries
const BUSY = new Set([429, 503]);
const PATIENCE = 90_000; // milliseconds of a request; the service ends it long before, unless it has stopped

/** An error with what to do about it. `status` is that of the answer, 0 if there was none. */
export class ServiceError extends Error {
  /** @param {{message: string, advice?: string, status?: number, request?: string, retryAfter?: number}} what */
  constructor({ message, advice = "", status = 0, request = "", retryAfter = 1 }) {
    super(message);
    this.advice = advice;
    this.status = status;
    this.request = request;
    this.retryAfter = retryAfter;
  }
}

/** @type {(wrong: boolean) => Promise<string | null>} */
let askForToken = async () => null;
/** @type {Promise<string | null> | null} */
let asking = null;
let token = recall("token", "sessionStorage") ?? "";

/**
 * Says who asks the visitor for the token; `wrong` is whether one was refused. Null means: none was given.
 * @param {(wrong: boolean) => Promise<string | null>} ask
 */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

/**
 * Returns the models of the service.
 * @returns {Promise<Model[]>}
 */
export async function fetchModels() {
  const models = await patiently(async () => readJson(await send("v1/models")));
  if (!Array.isArray(models)) throw unreadable();
  return models;
}

/**
 * Returns a sample photo of a model.
 * @param {string} model
 * @param {number} number
 * @returns {Promise<Blob>}
 */
export async function fetchSample(model, number) {
  return (await send(`v1/models/${encodeURIComponent(model)}/samples/${number}`)).blob();
}

/**
 * Asks a model for the objects of a photo.
 * @param {Blob} photo
 * @param {string} model
 * @param {Patience} [patience]
 * @returns {Promise<Answer>}
 */
export function detect(photo, model, patience = {}) {
  const query = new URLSearchParams({ model, score: String(LOWEST_SCORE) });
  const headers = { "Content-Type": photo.type.startsWith("image/") ? photo.type : "application/octet-stream" };
  return patiently(async () => {
    const begun = performance.now();
    const options = { method: "POST", body: photo, headers, signal: patience.signal };
    const answer = await readJson(await send(`v1/detect?${query}`, options));
    if (answer.results?.length !== 1) throw unreadable();
    return { ...answer.results[0], model: answer.model, trip: performance.now() - begun };
  }, patience);
}

/**
 * @typedef {object} Patience
 * @property {AbortSignal} [signal] ends the waiting
 * @property {(retryAt: number) => void} [onWait] is told the time of the next try
 */

/**
 * Does a request again, after the time that the service asks for, while it is busy.
 * @template T
 * @param {() => Promise<T>} task
 * @param {Patience} [patience]
 * @returns {Promise<T>}
 */
async function patiently(task, { signal, onWait } = {}) {
  for (let left = TRIES - 1; ; left -= 1) {
    try {
      return await task();
    } catch (error) {
      if (!(error instanceof ServiceError) || !BUSY.has(error.status) || left === 0) throw error;
      const milliseconds = 1000 * Math.min(error.retryAfter, LONGEST_WAIT);
      onWait?.(Date.now() + milliseconds);
      await pause(milliseconds, signal);
    }
  }
}

/**
 * Sends a request with the token, if there is one, and asks the visitor for it if the service wants it.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function send(path, options = {}) {
  for (;;) {
    const sent = token;
    const headers = new Headers(options.headers);
    if (sent) headers.set("Authorization", `Bearer ${sent}`);
    const response = await fetchOrExplain(path, { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401) throw await errorOf(response);
    // Requests that fail beside each other ask once, and those that were sent with an older token try again.
    if (sent !== token) continue;
    asking ??= askForToken(sent !== "").finally(() => (asking = null));
    const given = await asking;
    if (given === null) {
      throw new ServiceError({ message: text("error.token"), advice: text("error.token.advice"), status: 401 });
    }
    token = given;
    remember("token", given, "sessionStorage");
  }
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function fetchOrExplain(path, options) {
  const late = AbortSignal.timeout(PATIENCE);
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  try {
    return await fetch(path, { ...options, signal, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ServiceError({ message: text("error.network"), advice: text("error.network.advice") });
  }
}

/** @param {Response} response */
async function errorOf(response) {
  const answer = await response.json().catch(() => ({}));
  return new ServiceError({
    message: answer.error ?? `${response.status} ${response.statusText}`,
    advice: answer.advice,
    status: response.status,
    request: answer.request ?? response.headers.get("X-Request-Id") ?? "",
    retryAfter: Math.max(1, Number(response.headers.get("Retry-After")) || 1),
  });
}

/** @param {Response} response */
async function readJson(response) {
  try {
    return await response.json();
  } catch {
    throw unreadable();
  }
}

function unreadable() {
  return new ServiceError({ message: text("error.answer"), advice: text("error.answer.advice") });
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = window.setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      window.clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
