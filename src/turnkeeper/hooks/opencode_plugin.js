// Asks the Guardian about every tool call, output and prompt of opencode. Installed by `turnkeeper hook install opencode`.
//
// opencode takes an error that a hook throws for a denial; so everything that is no clear answer throws: a command that
// fails, takes too long or says something else.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const TIMEOUT_MS = __TIMEOUT_MS__

function ask(report) {
  return new Promise((resolve, reject) => {
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "pipe"] })
    const blocked = (why) => reject(new Error("blocked by the Guardian: " + why))
    const timer = setTimeout(() => {
      child.kill("SIGKILL")
      blocked("no answer within " + TIMEOUT_MS + " ms")
    }, TIMEOUT_MS)
    let out = ""
    let err = ""
    child.stdout.on("data", (bytes) => (out += bytes))
    child.stderr.on("data", (bytes) => (err += bytes))
    child.stdin.on("error", () => {})
    child.on("error", (error) => {
      clearTimeout(timer)
      blocked(error.message)
    })
    child.on("close", (code) => {
      clearTimeout(timer)
      if (code !== 0) return blocked(err.trim() || "the hook ended with " + code)
      let answer
      try {
        answer = JSON.parse(out)
      } catch {
        return blocked("the hook's answer cannot be read")
      }
      if (answer.verdict === "proceed" || answer.verdict === "replace") return resolve(answer)
      blocked(answer.reason || "no reason was given")
    })
    child.stdin.end(JSON.stringify(report))
  })
}

function replaced(target, value) {
  for (const name of Object.keys(target)) delete target[name]
  Object.assign(target, value)
}

export const TurnkeeperGuardian = async () => ({
  event: async ({ event }) => {
    if (event.type === "session.created") await ask({ hook: event.type, session: event.properties.info.id })
    if (event.type === "session.idle") await ask({ hook: event.type, session: event.properties.sessionID })
  },
  "chat.message": async (input, output) => {
    const text = output.parts.filter((part) => part.type === "text").map((part) => part.text)
    if (text.length) await ask({ hook: "chat.message", session: input.sessionID, text: text.join("\n") })
  },
  "tool.execute.before": async (input, output) => {
    const report = { hook: "tool.execute.before", session: input.sessionID, call: input.callID, tool: input.tool }
    const answer = await ask({ ...report, arguments: output.args })
    if (answer.verdict === "replace") replaced(output.args, answer.value)
  },
  "tool.execute.after": async (input, output) => {
    const report = { hook: "tool.execute.after", session: input.sessionID, call: input.callID, tool: input.tool }
    try {
      const answer = await ask({ ...report, output: output.output })
      if (answer.verdict === "proceed") return
      output.output = answer.value
    } catch (error) {
      output.output = "withheld: " + error.message
    }
    // What the client shows beside the output was not asked about.
    output.metadata = {}
    output.attachments = []
  },
})
