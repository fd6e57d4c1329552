// Keeps the page up to date while it is looked at, and knows the keys / j k space.
'use strict'
const main = document.querySelector('main[data-live]')
const button = document.getElementById('pause')
const status = document.getElementById('live')
let stream, pressed = false, stopped = false, loading = false, again = false

function say(text) { if (status.textContent !== text) status.textContent = text }

// Somebody who types, presses a button or selects text is not disturbed.
function busy() {
  const at = document.activeElement
  return pressed || at && main.contains(at) && /INPUT|TEXTAREA/.test(at.tagName) || String(getSelection()) !== ''
}

async function refresh() {
  if (loading) { again = true; return }
  loading = true
  try {
    const answer = await fetch(location.href, { credentials: 'same-origin' })
    if (answer.ok && !stopped && !busy()) {
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
      const next = page.querySelector('main')
      if (next && next.innerHTML !== main.innerHTML) {
        const at = document.activeElement && document.activeElement.id
        const rows = new Set(Array.from(main.querySelectorAll('tr[id]'), row => row.id))
        main.replaceChildren(...next.childNodes)
        if (rows.size) for (const row of main.querySelectorAll('tr[id]')) if (!rows.has(row.id)) row.classList.add('new')
        if (at && document.getElementById(at)) document.getElementById(at).focus()
      }
    }
  } catch { /* the stream says that the server is gone */ }
  loading = false
  if (again) { again = false; refresh() }
}

function follow() {
  const on = !stopped && !document.hidden
  if (on && !stream) {
    stream = new EventSource('/live')
    stream.onopen = () => { say('live'); refresh() }
    stream.onmessage = refresh
    stream.onerror = () => say('not connected')
  } else if (!on && stream) {
    stream.close()
    stream = undefined
    say(stopped ? 'stopped' : '')
  }
}

function pause() {
  stopped = !stopped
  button.setAttribute('aria-pressed', stopped)
  follow()
}

function move(by) {
  const rows = Array.from(main.querySelectorAll('tbody tr'))
  const at = rows.findIndex(row => row.classList.contains('at'))
  if (!rows.length) return
  if (at >= 0) rows[at].classList.remove('at')
  const row = rows[Math.max(0, Math.min(rows.length - 1, at + by))]
  row.classList.add('at')
  row.scrollIntoView({ block: 'nearest' })
  const link = row.querySelector('a')
  if (link) link.focus({ preventScroll: true })
}

if (main) {
  button.hidden = false
  button.addEventListener('click', pause)
  document.addEventListener('visibilitychange', follow)
  document.addEventListener('pointerdown', () => { pressed = true })
  for (const end of ['pointerup', 'pointercancel']) document.addEventListener(end, () => setTimeout(() => { pressed = false }))
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.altKey || event.metaKey || /INPUT|TEXTAREA|BUTTON|PRE/.test(event.target.tagName)) return
    const filter = document.getElementById('filter')
    if (event.key === '/' && filter) filter.focus()
    else if (event.key === 'j') move(1)
    else if (event.key === 'k') move(-1)
    else if (event.key === ' ') pause()
    else return
    event.preventDefault()
  })
  follow()
}
