/** The camera: its picture, a choice of cameras, and single frames. */

import { canvasBlob } from "./photo.js";
import { ServiceError } from "./service.js";
import { text } from "./texts.js";

const LONGEST_SIDE = 1280; // of the frames that are sent; more would only cost time

export class Camera {
  video = document.createElement("video");
  #canvas = document.createElement("canvas");

  /** @param {() => void} lost called when the camera is unplugged, or taken away */
  constructor(lost) {
    this.lost = lost;
    this.video.muted = true;
    this.video.playsInline = true;
  }

  /** Whether the picture is on. */
  get on() {
    return this.video.srcObject !== null;
  }

  /** Whether the browser gives cameras to this page at all. */
  static get allowed() {
    return navigator.mediaDevices?.getUserMedia !== undefined;
  }

  /** The id of the camera that is on. */
  get id() {
    return this.#tracks[0]?.getSettings().deviceId ?? "";
  }

  get #tracks() {
    return /** @type {MediaStream | null} */ (this.video.srcObject)?.getTracks() ?? [];
  }

  /**
   * Turns a camera on; the one at the back of a phone if none is named.
   * @param {string} [id]
   */
  async start(id) {
    if (!Camera.allowed) throw problem("camera.insecure");
    this.stop();
    const choice = id ? { deviceId: { exact: id } } : { facingMode: "environment" };
    const size = { width: { ideal: LONGEST_SIDE }, height: { ideal: 720 } };
    try {
      this.video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { ...choice, ...size } });
      for (const track of this.#tracks) track.addEventListener("ended", this.lost);
      await this.video.play();
    } catch (error) {
      this.stop();
      const denied = error instanceof DOMException && error.name === "NotAllowedError";
      throw problem(denied ? "camera.denied" : "camera.missing");
    }
  }

  stop() {
    for (const track of this.#tracks) track.stop();
    this.video.srcObject = null;
  }

  /**
   * Returns the cameras there are. Their names are known once one of them is on.
   * @returns {Promise<{id: string, name: string}[]>}
   */
  async list() {
    const devices = await navigator.mediaDevices.enumerateDevices();
    return devices
      .filter(({ kind }) => kind === "videoinput")
      .map(({ deviceId, label }, number) => ({
        id: deviceId,
        name: label || text("camera.number", { number: number + 1 }),
      }));
  }

  /**
   * Returns what the camera sees now as a JPEG.
   * @returns {Promise<Blob>}
   */
  frame() {
    const { videoWidth, videoHeight } = this.video;
    const shrink = Math.min(1, LONGEST_SIDE / Math.max(videoWidth, videoHeight));
    this.#canvas.width = Math.round(videoWidth * shrink);
    this.#canvas.height = Math.round(videoHeight * shrink);
    const context = /** @type {CanvasRenderingContext2D} */ (this.#canvas.getContext("2d"));
    context.drawImage(this.video, 0, 0, this.#canvas.width, this.#canvas.height);
    return canvasBlob(this.#canvas, "image/jpeg");
  }
}

/**
 * Returns the error of that name.
 * @param {string} key
 */
export function problem(key) {
  return new ServiceError({ message: text(key), advice: text(`${key}.advice`) });
}
