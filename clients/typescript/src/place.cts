// A module that both packages can load, since only CommonJS and ES modules know in which file they are, each by other words.
import { join } from "node:path";

/** The module that runs in a handler's thread. It imports ES modules as well as CommonJS. */
export const THREAD = join(__dirname, "../esm/thread.js");
