// One stream of the server for all windows of a browser, open while one of them is visible.
'use strict'
const ports = new Map()
let stream

function follow() {
  for (const [port, at] of ports) if (Date.now() - at > 60000) ports.delete(port)
  if (ports.size && !stream) {
    stream = new EventSource('live')
    stream.onmessage = e => say(e.data)
    stream.onerror = () => {
      say('lost')
      if (stream && stream.readyState === EventSource.CLOSED) stream = undefined
    }
  } else if (!ports.size && stream) {
    stream.close()
    stream = undefined
  }
}

function say(text) { for (const port of ports.keys()) port.postMessage(text) }

onconnect = e => {
  const port = e.ports[0]
  port.onmessage = m => {
    if (m.data === 'on') ports.set(port, Date.now())
    else ports.delete(port)
    follow()
  }
}
setInterval(follow, 5000)
