// What pipe.py does, for agents on Node; it runs agent.ts of examples/agents/typescript.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { run } from "./agent.ts";

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
let reply, controller;

const model = (tools, results) => {
  say({ turn: { tools: tools.map((tool) => tool.name), results } });
  return new Promise((resolve, reject) => {
    reply = resolve;
    controller.signal.addEventListener("abort", () => reject(controller.signal.reason));
  });
};

const one = () => {
  const { signal } = (controller = new AbortController());
  run(process.env.AGENT_URL, process.env.AGENT_TOKEN, model, signal).then(
    (text) => say(signal.aborted ? { cancelled: true } : { done: text }),
    (error) => say(signal.aborted ? { cancelled: true } : { error: String(error) }),
  );
};

const about = new URL("./node_modules/@modelcontextprotocol/client/package.json", import.meta.url);
say({ version: JSON.parse(readFileSync(about)).version });
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.run) one();
  else if (command.reply) reply(command.reply);
  else controller.abort();
}
process.exit(0);
