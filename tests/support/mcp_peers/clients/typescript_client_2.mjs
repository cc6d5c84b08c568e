// The client of the TypeScript SDK 2; PEER_MODE is one of its modes: auto, legacy, or a version to pin.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Changes, headers, mode, obey, url } from "./commands.mjs";

const changes = new Changes();
const client = new Client(
  { name: "toolcrib-peer", version: "1.0.0" },
  {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode: ["auto", "legacy"].includes(mode) ? mode : { pin: mode } },
    // The handler is called with the list as it is now, or with an error; either way a notice has come.
    listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => changes.hear() } },
  },
);
// The person at this client fills every form with text.
client.setRequestHandler("elicitation/create", ({ params }) => ({
  action: "accept",
  content: Object.fromEntries(Object.keys(params.requestedSchema.properties).map((field) => [field, "Ada"])),
}));
await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
await obey(client.getNegotiatedProtocolVersion(), client, changes);
