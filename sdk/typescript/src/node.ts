// The part for Node only: a home in a directory.

export { FileStorage } from "./home/files.js";
