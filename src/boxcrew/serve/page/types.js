/**
 * The types of the page, for readers and for editors that check them.
 *
 * @typedef {[number, number, number, number]} Box x1, y1, x2, y2 in pixels of the upright photo
 *
 * @typedef {object} Detection
 * @property {Box} box
 * @property {number} score 0..1
 * @property {number} label number of the class
 * @property {string} name of the class
 *
 * @typedef {object} Model as `/v1/models` describes it
 * @property {string} name
 * @property {string} digest of the weights
 * @property {string[]} classes
 * @property {string[]} colors `#rrggbb`, one for each class
 * @property {number | number[] | string} size of the input in pixels
 * @property {number | null} AP
 * @property {number | null} AP50
 * @property {number | null} score_threshold
 * @property {number | null} suggested_threshold
 * @property {string} engine
 * @property {string} precision
 * @property {number} samples number of sample photos
 *
 * @typedef {object} Answer about one photo by one model
 * @property {{name: string, digest: string}} model
 * @property {number} width of the upright photo
 * @property {number} height
 * @property {Detection[]} detections best first
 * @property {Record<string, number>} milliseconds of each stage on the service
 * @property {number} trip milliseconds from the request to the answer, as the browser saw it
 *
 * @typedef {object} Outcome what is known of one photo and one model
 * @property {"waiting" | "done" | "failed"} state
 * @property {Answer} [answer] if done
 * @property {import("./service.js").ServiceError} [error] if failed
 * @property {number} [retryAt] the time of the next try, if the service was busy
 */

export {};
