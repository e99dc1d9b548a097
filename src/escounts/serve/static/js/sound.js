// A live count that is heard: each new number spoken, or a beep. Off until the person asks for it.

import { byId } from "./format.js";

const KEY = "escounts-sound";
const BEEP = { hertz: 880, seconds: 0.12, loudness: 0.2 };

let audio = null;

export function setUpSound() {
  byId("live-sound").value = localStorage.getItem(KEY) ?? "off";
  byId("live-sound").onchange = ({ target }) => {
    localStorage.setItem(KEY, target.value);
    sound(null); // a browser lets a page be heard from a click on
  };
}

/** count: the number that has just been reached; null only wakes the sound. */
export function sound(count) {
  const how = byId("live-sound").value;
  if (how === "speak" && count !== null) {
    speechSynthesis.cancel(); // a number that is overtaken is not waited for
    speechSynthesis.speak(new SpeechSynthesisUtterance(String(count)));
  } else if (how === "beep") {
    audio ??= new AudioContext();
    audio.resume();
    if (count !== null) beep();
  }
}

function beep() {
  const tone = new OscillatorNode(audio, { frequency: BEEP.hertz });
  tone.connect(new GainNode(audio, { gain: BEEP.loudness })).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + BEEP.seconds);
}
