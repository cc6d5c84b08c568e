// An agent over MCP. It lists its tools before each request to the model: a revoked tool is gone in the next turn.
import { Client, StreamableHTTPClientTransport, type Tool } from "@modelcontextprotocol/client";

type Call = { name: string; arguments: Record<string, unknown> };
export type Model = (tools: Tool[], results: string[]) => Promise<{ text?: string; calls?: Call[] }>;

export async function run(url: string, token: string, model: Model, signal?: AbortSignal): Promise<string> {
  const headers = { Authorization: `Bearer ${token}` };
  const client = new Client({ name: "agent", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  try {
    for (let results: string[] = []; ; ) {
      const { tools } = await patiently(() => client.listTools(undefined, { signal, cacheMode: "refresh" }), signal);
      const reply = await model(tools, results);
      if (!reply.calls) return reply.text ?? "";
      results = await Promise.all(reply.calls.map((call) => answer(client, call, signal)));
    }
  } finally {
    await client.close();
  }
}

// A refused call is an answer for the model, too: it says what to correct.
async function answer(client: Client, call: Call, signal?: AbortSignal): Promise<string> {
  const result = await client.callTool(call, { signal }).catch((error) => ({ content: [{ type: "text", text: `${error}` }] }));
  return result.content.map((block) => ("text" in block ? block.text : block.type)).join("\n");
}

// Listing does no harm, so it is tried again for half a minute; a call never is.
async function patiently<T>(ask: () => Promise<T>, signal?: AbortSignal, left = 30): Promise<T> {
  return ask().catch((error) => left === 0 || signal?.aborted ? Promise.reject(error)
    : new Promise((over) => setTimeout(over, 1000)).then(() => patiently(ask, signal, left - 1)));
}
