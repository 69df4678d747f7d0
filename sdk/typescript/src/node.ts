// What only Node has: a home in a directory.

export { FileStorage } from "./home/files.js";
