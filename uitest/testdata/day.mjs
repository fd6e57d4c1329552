// The day of an agent, by the official TypeScript client: node day.mjs THREAD DIR
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import assert from "node:assert/strict";

const [program, dir] = process.argv.slice(2);
const connect = async (name) => {
  const client = new Client({ name, version: "1" });
  const env = { ...process.env, THREAD_DISPATCH: "none" };
  await client.connect(new StdioClientTransport({ command: program, args: ["mcp", "--thread", dir], env }));
  const call = async (tool, args, options) => {
    const result = await client.callTool({ name: tool, arguments: args }, undefined, options);
    return result.isError ? { error: result.content[0].text } : result.structuredContent;
  };
  return { client, call };
};

const asker = await connect("asker");
const worker = await connect("worker");
const { tools } = await worker.client.listTools();
assert.equal(tools.length, 16);
for (const tool of tools) assert.equal(typeof tool.annotations.openWorldHint, "boolean", tool.name);

// Somebody asks; the worker finds what waits, takes it, reads, answers and records that.
const asked = asker.call("ask", { type: "question", content: "6 * 7?", timeout: "50s" });
const taken = await worker.call("consume", { consumer: "agent", timeout: "50s" });
assert.equal(taken.events[0].source, "agent:asker");
const { session } = await worker.call("add_message", { role: "user", content: taken.events[0].content });
const { run } = await worker.call("start_run", { session, event_id: taken.events[0].id });
assert.equal((await worker.call("record_step", { run, name: "think", output: 42 })).seq, 1);
assert.equal((await worker.call("record_step", { run, name: "say" })).seq, 2);
await worker.call("add_message", { session, run, role: "assistant", content: [{ type: "text", text: "42" }] });
await worker.call("reply", { reply_to: taken.events[0].id, type: "answer", content: "42" });
assert.match((await asker.call("ack", { consumer: "agent", delivery: taken.delivery + "x" })).error, /not given/);
assert.equal((await worker.call("ack", { consumer: "agent", delivery: taken.delivery })).last_acked_id, 1);
assert.equal((await worker.call("end_run", { run, status: "completed" })).status, "completed");
assert.equal((await asked).text, "42");
assert.equal((await worker.call("messages", { session })).messages.length, 2);

// A wait is gone on with after its time, and misses nothing.
let waited = await asker.call("wait", { timeout: "1ms" });
assert.equal(waited.timed_out, true);
await worker.call("push", { type: "late", content: "" });
waited = await asker.call("wait", { after: waited.last_id, timeout: "50s" });
assert.equal(waited.events[0].type, "late");

const [event] = (await asker.client.readResource({ uri: "thread://inbox/events/1" })).contents;
assert.equal(JSON.parse(event.text).content, "6 * 7?");
await Promise.all([asker.client.close(), worker.client.close()]);
console.log("done");
