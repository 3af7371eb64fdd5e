// A server whose every answer needs another server: both connections are kept alive, through sleeps as well.
//
// GET /talk?to=HOST:PORT  asks that server, over a connection that is kept; counts in memory
// GET /readyz
import { Agent, createServer, request } from "node:http";

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const state = { talks: 0, broken: 0, local: new Set() };

function once(to) {
  return new Promise((resolve, reject) => {
    const call = request(`http://${to}/`, { agent }, (response) => {
      state.local.add(response.socket.localPort);
      response.setEncoding("utf8");
      let body = "";
      response.on("data", (part) => (body += part));
      response.once("end", () => resolve(body));
      response.once("error", reject);
    });
    call.setTimeout(10_000, () => call.destroy(new Error(`${to} did not answer within 10 s`)));
    call.once("error", reject);
    call.end();
  });
}

/** A kept connection may have ended while nobody looked: the program sees that at its next use, and makes a new one. */
async function ask(to) {
  try {
    return await once(to);
  } catch (error) {
    if (error.code !== "ECONNRESET" && error.code !== "EPIPE" && error.code !== "ECONNABORTED") throw error;
    state.broken += 1;
    return once(to);
  }
}

async function talk(url) {
  const answer = await ask(url.searchParams.get("to"));
  state.talks += 1;
  return { talks: state.talks, broken: state.broken, connections: state.local.size, pid: process.pid, answer };
}

const server = createServer((incoming, response) => {
  const url = new URL(incoming.url, "http://actor");
  const page = url.pathname === "/talk" ? talk(url) : Promise.resolve({});
  page.then(
    (body) => response.end(JSON.stringify(body)),
    (error) => {
      response.statusCode = 502;
      response.end(String(error));
    },
  );
});
server.keepAliveTimeout = 600_000;
server.listen(8080, () => {
  process.stdout.write(`listening, pid ${process.pid}\n`);
});
