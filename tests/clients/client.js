// fetch of Node against both servers; the addresses are the arguments.
const assert = require("node:assert");
const [demo, files] = process.argv.filter((word) => word.startsWith("http://"));
const TEXT = "0123456789abcdefghij";

async function main() {
  assert.strictEqual(await (await fetch(demo + "/plaintext")).text(), "Hello, World!");
  const pieces = Array.from({ length: 200 }, (_, number) => `piece ${number} `);
  const body = new ReadableStream({
    pull(controller) {
      const piece = pieces[this.at = (this.at ?? -1) + 1];
      piece === undefined ? controller.close() : controller.enqueue(new TextEncoder().encode(piece));
    },
  });
  const echo = await fetch(demo + "/echo", { method: "POST", body, duplex: "half" });
  assert.strictEqual(await echo.text(), pieces.join(""));
  assert.strictEqual((await fetch(demo + "/nothing")).status, 404);
  const many = await Promise.all(Array.from({ length: 50 }, () => fetch(files + "/file.txt").then((r) => r.text())));
  assert(many.every((text) => text === TEXT));
  const head = await fetch(files + "/file.txt", { method: "HEAD" });
  assert.strictEqual(head.headers.get("content-length"), "20");
  const part = await fetch(files + "/file.txt", { headers: { range: "bytes=5-9" } });
  assert.deepStrictEqual([part.status, await part.text()], [206, "56789"]);
  const story = await fetch(files + "/story.txt");
  assert(["gzip", "br", "zstd"].includes(story.headers.get("content-encoding")));
  assert.strictEqual((await story.text()).length, 500 * "once upon a time ".length);
  const list = await (await fetch(files + "/list/", { headers: { accept: "application/json" } })).json();
  assert(JSON.stringify(list).includes("a & <b>.txt"));
  console.log("ok");
}
main();
