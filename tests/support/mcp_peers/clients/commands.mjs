// What the clients of Node do: the same commands as commands.py.
import { createInterface } from "node:readline";

export const url = new URL(process.env.PEER_URL);
export const headers = { Authorization: `Bearer ${process.env.PEER_TOKEN}` };
export const mode = process.env.PEER_MODE ?? "";

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

/** Whether a change notice has come since it was last asked for. */
export class Changes {
  #heard = false;
  #waiting;

  hear() {
    this.#heard = true;
    this.#waiting?.();
  }

  async wait() {
    if (!this.#heard) await new Promise((resolve) => (this.#waiting = resolve));
    this.#heard = false;
  }
}

/** Say which version was negotiated, then obey until the input ends. */
export async function obey(version, client, changes) {
  const answer = async (command) => {
    switch (command.do) {
      case "list": {
        const names = [];
        let cursor;
        do {
          const page = await client.listTools(cursor === undefined ? undefined : { cursor });
          names.push(...page.tools.map((tool) => tool.name));
          cursor = page.nextCursor;
        } while (cursor !== undefined);
        return { tools: names };
      }
      case "call": {
        const result = await client.callTool({ name: command.tool, arguments: command.arguments });
        const text = result.content.filter((block) => block.type === "text").map((block) => block.text);
        return { text: text.join("\n"), failed: result.isError === true };
      }
      case "changed":
        await changes.wait();
        return { changed: true };
      default:
        throw new Error(`unknown command ${command.do}`);
    }
  };
  say({ version });
  for await (const line of createInterface({ input: process.stdin })) {
    say(await answer(JSON.parse(line)).catch((error) => ({ error: String(error) })));
  }
  await client.close();
  process.exit(0);
}
