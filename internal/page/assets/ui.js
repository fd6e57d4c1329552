// What a page adds when there is JavaScript: it stays up to date; keys, times, copying, sorting.
'use strict'
const doc = document, now = Date.now, focused = () => doc.activeElement, on = (names, f) => names.split(' ').forEach(n => doc.addEventListener(n, f))
const $ = (s, at = doc) => at.querySelector(s), all = (s, at = doc) => [...at.querySelectorAll(s)]
const byId = id => doc.getElementById(id)
const main = $('main[data-live]'), live = $('#live'), data = doc.body.dataset
for (const e of all('[data-js]')) e.hidden = false

// Times: ages go on, and times of day are local or UTC. The full UTC time stays in the title.
const skew = data.now - now()
let local = false
try { local = localStorage.tz === 'local' } catch {}
const span = s => s < 60 ? s + ' s' : s < 3600 ? (s / 60 | 0) + ' min' : s < 172800 ? (s / 3600 | 0) + ' h' : (s / 86400 | 0) + ' d'
const clock = d => d.toLocaleTimeString('en-GB')
function times(at = doc) {
  for (const t of all('time', at)) {
    const kind = t.dataset.a, s = Math.max(0, (now() + skew - Date.parse(t.dateTime)) * (kind === 'in' ? -1 : 1) / 1000 | 0)
    const utc = t.dataset.utc ??= t.textContent
    const text = kind === 'in' ? 'in ' + span(s) : kind === 'ago' ? s ? span(s) + ' ago' : 'now' : kind ? span(s) : local && /^\d\d:\d\d:\d\d$/.test(utc) ? clock(new Date(t.dateTime)) : utc
    if (t.textContent !== text) t.textContent = text
  }
  for (const b of all('[data-tz]')) b.setAttribute('aria-pressed', (b.dataset.tz === 'local') === local)
}
for (const b of all('[data-tz]')) b.onclick = () => {
  local = b.dataset.tz === 'local'
  try { localStorage.tz = local ? 'local' : 'utc' } catch {}
  times()
}

// What has come and is not shown yet, because someone is at it.
let version = data.v, parts = {}, lists = {}, whole, touched = 0, pressed = false
const quiet = box => now() - touched > 5000 || !(box.matches(':hover') || box.contains(focused()))
function busy(e) {
  const at = focused(), chosen = getSelection()
  return pressed || at && at !== e && e.contains(at) || !chosen.isCollapsed && chosen.containsNode(e, true) || $('.pop[open]', e)
}
function made(html) {
  const t = doc.createElement('template')
  t.innerHTML = html
  const e = t.content.firstElementChild
  times(e)
  return e
}
function replace(old, e) {
  for (const d of [e, ...all('details[id]', e)]) if ('open' in d && byId(d.id)) d.open = byId(d.id).open
  const at = old.scrollTop, end = old.scrollHeight - old.clientHeight - at < 4
  if (old.matches('.at')) e.classList.add('at')
  old.replaceWith(e)
  if (e.matches('.log')) e.scrollTop = end ? e.scrollHeight : at
}
function order(id, ids, force) {
  const box = byId(id)
  if (!box) return true
  const rows = [...box.children], want = new Set(ids), fresh = ids.filter(i => !byId(i))
  // What says that a list is empty has no id, and stays.
  if (rows.map(r => r.id).join(' ') === ids.join(' ')) return true
  if (!force && (!quiet(box) || rows.some(r => !want.has(r.id) && busy(r)))) { bar(box, fresh.length); return false }
  bar(box, 0)
  for (const r of rows) if (!want.has(r.id)) r.remove()
  ids.forEach((i, n) => {
    let e = byId(i)
    if (!e && parts[i]) { e = made(parts[i]); delete parts[i]; e.classList.add('new') }
    if (e && box.children[n] !== e) box.insertBefore(e, box.children[n] ?? null)
  })
  search()
  return true
}
// New rows of a list that is being read wait behind a line that says how many they are.
function bar(box, n) {
  if (!('newest' in box.dataset)) return
  const table = box.closest('table')
  let b = table.previousElementSibling
  if (!b?.matches('.new-bar')) b = null
  if (!n) { b?.remove(); return }
  if (!b) {
    b = doc.createElement('button')
    b.className = 'new-bar'
    b.onclick = () => { const ids = lists[box.id]; if (ids && order(box.id, ids, true)) delete lists[box.id] }
    table.before(b)
  }
  b.textContent = n + ' new – show'
}
function flush() {
  if (whole !== undefined) {
    if (busy(main)) return
    const open = all('details[id][open]', main).map(d => d.id)
    main.innerHTML = whole
    for (const d of all('details[id]', main)) if (open.includes(d.id)) d.open = true
    whole = undefined
    times(main)
    ready()
  }
  for (const [id, ids] of Object.entries(lists)) if (order(id, ids)) delete lists[id]
  const waiting = new Set(Object.values(lists).flat())
  for (const [id, html] of Object.entries(parts)) {
    const e = byId(id)
    if (e && !busy(e)) replace(e, made(html))
    else if (e || waiting.has(id)) continue
    delete parts[id]
  }
}

// The stream says when something may have changed; the page asks what.
let heard = now(), lost = false, stopped = false, loading = false, again = false, last = 0
async function refresh() {
  if (loading) { again = true; return }
  loading = true
  const pause = last + 400 - now()
  if (pause > 0) await new Promise(ok => setTimeout(ok, pause))
  last = now()
  try {
    const answer = await fetch(location.href, { headers: { 'X-Thread-Have': version } })
    if (answer.headers.get('Content-Type') === 'application/json' && !stopped) {
      const p = await answer.json()
      version = p.v
      if (p.main !== undefined) { whole = p.main; parts = {}; lists = {} }
      Object.assign(parts, p.parts)
      Object.assign(lists, p.lists)
      flush()
      heard = now()
      lost = false
    } else if (answer.status === 401) location.reload()
  } catch { lost = true }
  loading = false
  say()
  if (again) { again = false; refresh() }
}
function hear(text) {
  if (text === 'lost') lost = true
  else { heard = now(); lost = false }
  if (text === 'changed' || text === 'beat' && now() - last > 9000) refresh()
  say()
}
function say() {
  if (!live) return
  const s = (now() - heard) / 1000 | 0, gone = s >= 30, late = lost || s >= 10
  $('.dot', live).className = 'dot ' + (stopped ? 'paused' : gone ? 'fail' : late ? 'behind' : 'ok beat')
  live.classList.toggle('amber', late && !stopped)
  const word = stopped ? 'stopped' : gone ? 'not connected since ' + clock(new Date(heard)) : late ? 'no answer' : 'live'
  const status = $('[role=status]', live)
  if (status.textContent !== word) status.textContent = word
  $('#age').textContent = stopped || gone ? word : 'updated ' + (s ? s + ' s ago' : 'now')
  live.setAttribute('aria-pressed', stopped)
}
let port, stream
function follow() {
  const open = !stopped && !doc.hidden
  if (port) port.postMessage(open ? 'on' : 'off')
  else if (open && !stream) {
    stream = new EventSource(data.worker.replace(/worker.*/, 'live'))
    stream.onmessage = e => hear(e.data)
    stream.onerror = () => hear('lost')
  } else if (!open && stream) { stream.close(); stream = undefined }
  if (open) refresh()
}
function stop() { stopped = !stopped; follow(); say() }
if (main) {
  try {
    port = new SharedWorker(data.worker).port
    port.onmessage = e => hear(e.data)
  } catch {}
  live.onclick = stop
  follow()
  on('visibilitychange', follow)
  addEventListener('pagehide', () => port?.postMessage('off'))
  setInterval(() => { if (!stopped && !doc.hidden) port?.postMessage('on') }, 20000)
  setInterval(() => { if (!doc.hidden) { flush(); times(); say() } }, 1000)
  on('pointerdown pointermove keydown wheel', () => { touched = now() })
  on('pointerdown', () => { pressed = true })
  on('pointerup pointercancel', () => setTimeout(() => { pressed = false }))
  on('click', () => setTimeout(() => { touched = 0; flush() }))
}

// Sorting and searching in place: the rows are there already.
const worst = ['ok', 'queued', 'run', 'paused', 'unknown', 'behind', 'dead', 'fail', 'stall']
function value(row, i) {
  if (!i) return worst.indexOf(row.dataset.s)
  const c = row.cells[i], t = $('time', c), text = c.textContent.trim(), n = parseFloat(text.replace(/,/g, ''))
  return t ? now() - Date.parse(t.dateTime) : isNaN(n) ? /^[–?]?$/.test(text) ? -1 : text : n
}
function search() {
  const text = $('[name=name]')?.value.toLowerCase()
  if (text !== undefined) for (const r of all('tr[data-s]')) r.hidden = !r.textContent.toLowerCase().includes(text)
}
on('input', e => { if (e.target.name === 'name') search() })
on('click', async e => {
  const a = e.target.closest('th a, [data-copy], [data-close]')
  if (!a) return
  e.preventDefault()
  if (a.matches('[data-close]')) return a.closest('.toast').remove()
  if (a.matches('[data-copy]')) {
    await navigator.clipboard.writeText($(a.dataset.copy).innerText)
    return a.textContent = 'Copied'
  }
  const th = a.parentNode, body = th.closest('table').tBodies[0], i = th.cellIndex, down = th.ariaSort !== 'descending'
  for (const x of all('[aria-sort]', th.parentNode)) { x.ariaSort = null; $('[aria-hidden]', x)?.remove() }
  th.ariaSort = down ? 'descending' : 'ascending'
  a.insertAdjacentHTML('beforeend', `<span aria-hidden="true">${down ? '↓' : '↑'}</span>`)
  const rows = [...body.rows].map(r => [value(r, i), r])
  body.append(...rows.sort(([x], [y]) => (x > y ? 1 : x < y ? -1 : 0) * (down === (i !== 1 && i !== 2) ? -1 : 1)).map(r => r[1]))
  const u = new URL(a.href)
  u.searchParams[down ? 'delete' : 'set']('down', 1)
  history.replaceState(null, '', u)
})

// Keys: / searches, j and k go through rows, Enter opens, space stops, Escape closes.
on('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return
  if (e.key === 'Escape') { for (const d of all('.pop[open]')) d.open = false; focused().blur(); return }
  if (/INPUT|TEXTAREA|SELECT|BUTTON|SUMMARY/.test(e.target.tagName)) return
  if (e.key === '/') { e.preventDefault(); ($('#filter') || $('#q')).focus() }
  if (e.key === ' ' && main && !e.target.closest('pre, .log')) { e.preventDefault(); stop() }
  if (e.key === 'j' || e.key === 'k') {
    const rows = all('main tbody tr:not([hidden]), main .prob'), at = rows.findIndex(r => r.matches('.at'))
    const to = rows[Math.max(0, Math.min(rows.length - 1, at + (e.key === 'j' ? 1 : -1)))]
    if (!to) return
    rows[at]?.classList.remove('at')
    to.classList.add('at')
    to.scrollIntoView({ block: 'nearest' })
    $('a', to)?.focus({ preventScroll: true })
  }
})
function ready() { for (const l of all('.log')) l.scrollTop = l.scrollHeight }
ready()
times()
const toast = $('.toast')
if (toast) setTimeout(() => toast.remove(), $('form', toast) ? 20000 : 10000)
