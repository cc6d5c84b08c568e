// The client of the TypeScript SDK 1.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { Changes, headers, obey, url } from "./commands.mjs";

const changes = new Changes();
const client = new Client({ name: "toolcrib-peer", version: "1.0.0" });
client.setNotificationHandler(ToolListChangedNotificationSchema, () => changes.hear());
const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
await client.connect(transport);
await obey(transport.protocolVersion, client, changes);
