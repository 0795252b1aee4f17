// The picture of cells: one canvas, which draws what is in view at the level of cells that can be told apart.
//
// Cells of a chain lie level by level, so that a cell's place follows from its number. Looks come as bytes (see cells.py)
// for the cells in view alone, and are asked for again every few seconds, while somebody looks.
"use strict";
(() => {
  const section = document.getElementById("picture");
  if (!section) return;
  const canvas = document.getElementById("cells"), frame = document.getElementById("frame"), sizer = document.getElementById("sizer");
  const words = document.getElementById("cell-words"), zoomWords = document.getElementById("zoom-level");
  const SCALES = Array.from({ length: 52 }, (_, i) => 0.15 * 1.12 ** i), STEP = 4;
  const LEAST = 6, HEAD = 26, MARGIN = 8, BLOCK = 512, POLL_MS = 5000;
  const USED = 0, RESERVED = 1, LENT = 2, FREE = 3;
  const context = canvas.getContext("2d", { alpha: false });

  const MOST_FITTED = 50;  // 43 pixels for a leaf cell: larger ones tell nothing more
  let layout = null, blocks = [], lastRoom = 0, scale = -1, isFitted = true, width = 0, height = 0;
  let loaded = new Map(), labels = new Map(), tag = "", timer = 0, isSeen = true, chosen = null, asked = 0, isWanted = false, lastAsked = "";
  let colours = {}, styles = new Map();
  const marks = readMarks(section.dataset.marks);

  function readMarks(text) {
    const byChain = new Map();
    for (const [chain, first, end, kind] of text ? JSON.parse(text) : []) {
      if (!byChain.has(chain)) byChain.set(chain, []);
      byChain.get(chain).push([first, end, kind]);
    }
    for (const each of byChain.values()) each.sort((one, other) => one[0] - other[0]);
    return byChain;
  }

  // Geometry: the same arithmetic for drawing, finding and moving.

  function geometry(chain, size) {
    const levels = chain.types.length, leaves = [0, 1];
    for (let level = 2; level <= levels; level++) leaves[level] = leaves[level - 1] * chain.children[level - 1];
    let drawn = 1;
    while (drawn < levels && size * Math.sqrt(leaves[drawn]) < LEAST) drawn++;
    const side = Math.max(4, Math.round(size * Math.sqrt(leaves[drawn])));
    const boxes = [null];
    for (let level = 1; level < drawn; level++) boxes.push(null);
    boxes.push({ w: side, h: side });
    for (let level = drawn + 1; level <= levels; level++) {
      const child = boxes[level - 1], count = chain.children[level - 1];
      const gap = level === drawn + 1 ? (side < 12 ? 1 : 2) : Math.min(9, 3 + 2 * (level - drawn - 2));
      const pad = level === drawn + 1 && side < 12 ? 1 : 3;
      const most = Math.max(1, Math.floor((width - 2 * MARGIN - 2 * pad + gap) / (child.w + gap)));
      let cols = columns(count, Math.sqrt(count * child.h / child.w * 1.5), most);
      if (2 * cols * (child.w + gap) > width || (level === levels && chain.roots === 1)) cols = Math.min(most, count);
      const w = 2 * pad + cols * (child.w + gap) - gap;
      const head = level > chain.node && w >= 56 ? 15 : 0;
      boxes.push({ w, h: 2 * pad + head + Math.ceil(count / cols) * (child.h + gap) - gap, cols, gap, pad, head });
    }
    const top = boxes[levels], gap = levels === drawn ? 2 : 8;
    const cols = Math.max(1, Math.min(chain.roots, Math.floor((width - 2 * MARGIN + gap) / (top.w + gap))));
    return { leaves, drawn, boxes, levels, cols, gap, rows: Math.ceil(chain.roots / cols) };
  }

  function columns(count, ideal, most) {
    let best = Math.max(1, Math.min(most, Math.round(ideal)));
    if (count > 64) return best;
    let least = Math.log(1.8);
    for (let each = 1; each <= Math.min(count, most); each++) {
      const far = Math.abs(Math.log(each / ideal));
      if (count % each === 0 && far < least) [best, least] = [each, far];
    }
    return best;
  }

  function arrange(size) {
    const found = [];
    let top = 0;
    layout.chains.forEach((chain, number) => {
      const shape = geometry(chain, size);
      const tall = HEAD + shape.rows * (shape.boxes[shape.levels].h + shape.gap) + 6;
      found.push({ chain, number, shape, top, tall });
      top += tall;
    });
    return found;
  }

  /** The height that the picture may have, in pixels. */
  const room = () => Math.max(240, Math.min(1800, window.innerHeight * 0.64));

  let resizing = 0;
  function resizeSoon() {
    clearTimeout(resizing);
    resizing = setTimeout(resize, width ? 100 : 0);
  }

  function resize() {
    if (width === frame.clientWidth && height === frame.clientHeight && lastRoom === room()) return;
    [width, height, lastRoom] = [frame.clientWidth, frame.clientHeight, room()];
    fitCanvas();
    if (layout) place();
  }

  function fitCanvas() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  function total(arranged) {
    const last = arranged[arranged.length - 1];
    return last ? last.top + last.tall : 0;
  }

  /** Whether everything is in view, in height and in width. */
  function fits(arranged) {
    const isWide = ({ shape }) => shape.boxes[shape.levels].w > width - 2 * MARGIN;
    return total(arranged) <= room() && !arranged.some(isWide);
  }

  function place(keep) {
    if (isFitted) {
      scale = MOST_FITTED;
      while (scale > 0 && !fits(arrange(SCALES[scale]))) scale--;
    }
    blocks = arrange(SCALES[scale]);
    frame.style.height = `${Math.max(160, Math.min(room(), total(blocks)))}px`;
    if (frame.clientHeight !== height) { height = frame.clientHeight; fitCanvas(); }
    sizer.style.height = `${Math.max(height, total(blocks))}px`;
    if (keep) {
      const box = boxOf(keep.chain, blocks[keep.chain].shape.drawn, keep.leaf);
      frame.scrollTop = box.y + box.h / 2 - height / 2;
    }
    const shown = new Map();
    for (const { chain, shape } of blocks) {
      const kind = kindOf(chain, shape.drawn);
      shown.set(kind, (shown.get(kind) || new Set()).add(chain.types[shape.drawn - 1]));
    }
    const types = (names) => [...names].slice(0, 3).join(", ") + (names.size > 3 ? " …" : "");
    zoomWords.textContent = `Each box is one ${[...shown].map(([kind, names]) => (kind ? `${kind} (${types(names)})` : types(names))).join(" or ")}`;
    draw();
  }

  /** What people call a cell of a level, "" where its type says it best. */
  const kindOf = (chain, level) => (level - 1 === chain.node ? "node" : level === 1 ? "GPU" : "");

  /** The box of the cell of a level that has a leaf, in the coordinates of the sizer. */
  function boxOf(number, level, leaf) {
    const { shape, top } = blocks[number];
    let current = shape.levels, index = Math.floor(leaf / shape.leaves[current]);
    let box = shape.boxes[current];
    let x = MARGIN + (index % shape.cols) * (box.w + shape.gap), y = top + HEAD + Math.floor(index / shape.cols) * (box.h + shape.gap);
    while (current > level) {
      const child = shape.boxes[current - 1], at = Math.floor((leaf % shape.leaves[current]) / shape.leaves[current - 1]);
      x += box.pad + (at % box.cols) * (child.w + box.gap);
      y += box.pad + box.head + Math.floor(at / box.cols) * (child.h + box.gap);
      current--;
      box = child;
    }
    return { x, y, w: box.w, h: box.h };
  }

  /** The drawn cell at a point of the sizer, as its chain and first leaf; null between cells. */
  function cellAt(x, y) {
    const block = blocks.find((each) => y >= each.top && y < each.top + each.tall);
    if (!block) return null;
    const { shape, chain } = block;
    let box = shape.boxes[shape.levels], left = MARGIN, up = block.top + HEAD, cols = shape.cols, gap = shape.gap, count = chain.roots;
    let leaf = 0;
    for (let level = shape.levels; ; level--) {
      const column = Math.floor((x - left) / (box.w + gap)), row = Math.floor((y - up) / (box.h + gap));
      if (column < 0 || row < 0 || column >= cols || row * cols + column >= count) return null;
      left += column * (box.w + gap);
      up += row * (box.h + gap);
      if (x >= left + box.w || y >= up + box.h) return null;
      leaf += (row * cols + column) * shape.leaves[level];
      if (level === shape.drawn) return { chain: block.number, leaf };
      left += box.pad;
      up += box.pad + box.head;
      ({ cols, gap } = box);
      count = chain.children[level - 1];
      box = shape.boxes[level - 1];
    }
  }

  // Looks

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    colours = { vcs: [] };
    for (let i = 0; i < 12; i++) colours.vcs.push(value(`--vc-${i}`));
    for (const name of ["paper", "sheet", "ink", "faint", "line", "free", "free-line", "bad", "mark", "focus"]) colours[name] = value(`--${name}`);
    styles = new Map();
  }

  function pattern(size, paint) {
    const tile = document.createElement("canvas"), ratio = 2;
    tile.width = tile.height = size * ratio;
    const brush = tile.getContext("2d");
    brush.scale(ratio, ratio);
    paint(brush, size);
    const made = context.createPattern(tile, "repeat");
    made.setTransform(new DOMMatrix().scale(1 / ratio));
    return made;
  }

  function stripes(brush, size, colour, thick, both) {
    brush.strokeStyle = colour;
    brush.lineWidth = thick;
    brush.beginPath();
    for (const at of [-size, 0, size]) {
      brush.moveTo(at, size);
      brush.lineTo(at + size, 0);
      if (both) { brush.moveTo(at, 0); brush.lineTo(at + size, size); }
    }
    brush.stroke();
  }

  function styleOf(key) {
    let style = styles.get(key);
    if (style) return style;
    const vc = (key & 1023) - 1, use = (key >> 10) & 3, isBad = key >> 12 & 1;
    const own = vc >= 0 ? colours.vcs[vc % 12] : colours.faint, texture = vc >= 0 ? Math.floor(vc / 12) % 3 : 0;
    const letter = vc >= 0 ? layout.letters[vc] || "#" : "";
    style = { fill: own, letter: use === LENT ? letter.toLowerCase() : letter, dash: null, ink: "#fff" };
    const back = (brush, size, colour) => { brush.fillStyle = colour; brush.fillRect(0, 0, size, size); };
    if (isBad) {
      style.fill = pattern(6, (brush, size) => { back(brush, size, colours.free); stripes(brush, size, colours.bad, 1.6, true); });
      style.dash = { colour: colours.bad, line: [] };
      style.letter = use === USED || use === LENT ? style.letter : "";
      style.ink = colours.ink;
    } else if (use === LENT) {
      style.fill = pattern(6, (brush, size) => { back(brush, size, colours.free); stripes(brush, size, own, 2.4, false); });
      style.ink = colours.ink;
    } else if (use === RESERVED) {
      style.fill = colours.free;
      style.dash = { colour: own, line: [3, 2] };
      style.ink = colours.ink;
      style.letter = "~";
    } else if (use === FREE) {
      style.fill = colours.free;
      style.letter = "";
    } else if (texture) {
      style.fill = pattern(5, (brush, size) => {
        back(brush, size, own);
        brush.fillStyle = colours.paper;
        if (texture === 1) brush.fillRect(1.5, 1.5, 2, 2); else brush.fillRect(0, 0, size, 1);
      });
    }
    styles.set(key, style);
    return style;
  }

  function markOn(number, first, end) {
    const list = marks.get(number);
    if (!list) return null;
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >> 1; if (list[middle][1] <= first) low = middle + 1; else high = middle; }
    return low < list.length && list[low][0] < end ? list[low] : null;
  }

  function drawCell(block, data, index, x, y, w, h) {
    const at = data && index >= data.first && index < data.end ? index - data.first : -1;
    if (at < 0) {  // not here yet: nothing is said of it
      context.strokeStyle = colours.line;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      return;
    }
    context.fillStyle = colours.free;
    context.fillRect(x, y, w, h);
    const count = block.shape.leaves[block.shape.drawn], start = data.starts[at], stop = data.starts[at + 1];
    const mark = marks.size ? markOn(block.number, index * count, (index + 1) * count) : null;
    const isFaded = marks.size && !mark;
    if (isFaded) context.globalAlpha = 0.3;
    let left = x;
    for (let run = start; run < stop; run++) {
      const style = styleOf(data.keys[run]), wide = data.counts[run] / count * w;
      if (style.fill !== colours.free) { context.fillStyle = style.fill; context.fillRect(left, y, wide, h); }
      if (style.dash && w >= 6) {
        context.strokeStyle = style.dash.colour;
        context.lineWidth = 1.5;
        context.setLineDash(style.dash.line);
        context.strokeRect(left + 1, y + 1, Math.max(1, wide - 2), h - 2);
        context.setLineDash([]);
      }
      if (wide >= 13 && h >= 13 && style.letter) {
        context.font = `bold ${Math.max(10, Math.min(18, Math.round(0.45 * Math.min(wide, h))))}px system-ui, sans-serif`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.lineWidth = 2.5;
        context.strokeStyle = style.ink === "#fff" ? "rgba(0,0,0,.75)" : colours.paper;
        if (!isFaded) context.strokeText(style.letter, left + wide / 2, y + h / 2);
        context.fillStyle = isFaded ? colours.ink : style.ink;
        context.fillText(style.letter, left + wide / 2, y + h / 2);
      }
      left += wide;
    }
    if (w >= 9) {
      context.strokeStyle = colours["free-line"];
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
    context.globalAlpha = 1;
    if (mark) {
      context.strokeStyle = mark[2] === 1 || mark[2] === 2 ? colours.bad : colours.mark;
      context.lineWidth = w >= 12 ? 3 : 2;
      context.setLineDash(mark[2] >= 2 ? [4, 3] : []);
      context.strokeRect(x, y, w, h);
      context.setLineDash([]);
    }
  }

  function draw() {
    if (!layout) return;
    const top = frame.scrollTop, bottom = top + height;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    const ranges = [], named = [];
    for (const block of blocks) {
      if (block.top + block.tall < top || block.top > bottom) continue;
      const { shape, chain, number } = block, data = loaded.get(`${number}.${shape.drawn}`);
      context.textAlign = "left";
      context.fillStyle = colours.ink;
      context.font = "600 13px system-ui, sans-serif";
      context.fillText(chain.name, MARGIN, block.top - top + HEAD / 2);
      let least = Infinity, most = -1;
      const heads = new Map();
      const visit = (level, index, x, y) => {
        const box = shape.boxes[level];
        if (y + box.h < 0 || y > height) return;
        if (level === shape.drawn) {
          if (index < least) least = index;
          if (index > most) most = index;
          drawCell(block, data, index, x, y, box.w, box.h);
          return;
        }
        context.strokeStyle = colours.line;
        context.lineWidth = 1;
        if (box.pad > 1) context.strokeRect(x + 0.5, y + 0.5, box.w - 1, box.h - 1);
        if (box.head) {
          const range = heads.get(level);
          if (range) { range[0] = Math.min(range[0], index); range[1] = Math.max(range[1], index); } else heads.set(level, [index, index]);
          const name = labels.get(`${number}.${level}.${index}`);
          if (name) label(name, x + 4, y + 1 + box.head / 2, box.w - 6);
        }
        const child = shape.boxes[level - 1], count = chain.children[level - 1];
        for (let i = 0; i < count; i++) {
          visit(level - 1, index * count + i, x + box.pad + (i % box.cols) * (child.w + box.gap),
            y + box.pad + box.head + Math.floor(i / box.cols) * (child.h + box.gap));
        }
      };
      const box = shape.boxes[shape.levels];
      const row = Math.max(0, Math.floor((top - block.top - HEAD) / (box.h + shape.gap)));
      const lastRow = Math.min(shape.rows - 1, Math.floor((bottom - block.top - HEAD) / (box.h + shape.gap)));
      for (let index = row * shape.cols; index < Math.min(chain.roots, (lastRow + 1) * shape.cols); index++) {
        visit(shape.levels, index, MARGIN + (index % shape.cols) * (box.w + shape.gap),
          block.top - top + HEAD + Math.floor(index / shape.cols) * (box.h + shape.gap));
      }
      if (most >= 0) {
        const size = shape.levels === shape.drawn ? chain.roots : chain.roots * shape.leaves[shape.levels] / shape.leaves[shape.drawn];
        ranges.push([number, shape.drawn, Math.floor(least / BLOCK) * BLOCK, Math.min(size, Math.ceil((most + 1) / BLOCK) * BLOCK)]);
        for (const [level, [first, last]] of heads) {
          if (last - first < 2048 && (!labels.has(`${number}.${level}.${first}`) || !labels.has(`${number}.${level}.${last}`))) named.push(`${number}.${level}.${first}-${last + 1}`);
        }
      }
    }
    if (chosen) {
      const box = boxOf(chosen.chain, blocks[chosen.chain].shape.drawn, chosen.leaf), y = box.y - top;
      context.lineWidth = 5;
      context.strokeStyle = colours.paper;
      context.strokeRect(box.x - 1.5, y - 1.5, box.w + 3, box.h + 3);
      context.lineWidth = 3;
      context.strokeStyle = colours.focus;
      context.strokeRect(box.x - 1.5, y - 1.5, box.w + 3, box.h + 3);
    }
    want(ranges);
    if (named.length) fetchNames(named.slice(0, 32));
  }

  function label(text, x, y, room) {
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillStyle = colours.faint;
    const fits = (words) => context.measureText(words).width <= room;
    let shown = text;
    if (!fits(shown) && /^[^.]*[a-z]/i.test(text)) shown = text.split(".")[0];  // without the domain, which all have
    if (!fits(shown)) {
      while (shown.length > 1 && !fits(`…${shown}`)) shown = shown.slice(1);
      shown = `…${shown}`;
    }
    context.fillText(shown, x, y);
  }

  let isDue = false;
  function drawSoon() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; draw(); });
  }

  // Asking

  function want(ranges) {
    const address = ranges.map(([chain, level, first, end]) => `${chain}.${level}.${first}-${end}`).join(",");
    if (!address || address === lastAsked) return;
    lastAsked = address;
    fetchTiles();
  }

  async function fetchTiles() {
    if (asked) { isWanted = true; return; }
    if (!lastAsked) return;
    asked = 1;
    clearTimeout(timer);
    try {
      const answer = await fetch(`/page/cells/tiles?at=${lastAsked}`, { cache: "no-cache", headers: { Accept: "application/octet-stream" } });
      if (answer.status === 404 || (answer.ok && answer.headers.get("X-Layout") !== layout.id)) {
        await fetchLayout();
      } else if (answer.ok && answer.headers.get("ETag") + lastAsked !== tag) {
        read(await answer.arrayBuffer());
        tag = answer.headers.get("ETag") + lastAsked;
        drawSoon();
      }
    } catch (error) {
      // the pages' own status says that nobody answers
    }
    asked = 0;
    if (isWanted) { isWanted = false; fetchTiles(); } else timer = setTimeout(poll, POLL_MS);
  }

  function poll() {
    if (!document.hidden && isSeen) fetchTiles(); else timer = setTimeout(poll, POLL_MS);
  }

  function read(buffer) {
    let at = 0;
    while (at < buffer.byteLength) {
      const [chain, level, first, cells, runs] = new Uint32Array(buffer, at, 5);
      const counts = new Uint32Array(buffer, at + 20, runs), keys = new Uint16Array(buffer, at + 20 + 4 * runs, runs);
      const lengths = new Uint16Array(buffer, at + 20 + 6 * runs, cells), starts = new Uint32Array(cells + 1);
      for (let i = 0; i < cells; i++) starts[i + 1] = starts[i] + lengths[i];
      loaded.set(`${chain}.${level}`, { first, end: first + cells, counts, keys, starts });  // other levels are kept for a way back
      at += Math.ceil((20 + 6 * runs + 2 * cells) / 4) * 4;
    }
  }

  async function fetchLayout() {
    const answer = await fetch("/page/cells/layout", { cache: "no-cache" }).catch(() => null);
    if (!answer || !answer.ok) { if (!layout) setTimeout(fetchLayout, POLL_MS); return; }
    layout = await answer.json();
    [loaded, labels, tag, lastAsked, styles, chosen] = [new Map(), new Map(), "", "", new Map(), null];
    place();
  }

  const naming = new Set();
  async function fetchNames(ranges) {
    const address = ranges.join(",");
    if (naming.has(address) || naming.size > 4) return;
    naming.add(address);
    const answer = await fetch(`/page/cells/names?at=${address}`, { cache: "no-cache" }).catch(() => null);
    if (answer && answer.ok) {
      (await answer.json()).forEach((names, i) => {
        const [chain, level, range] = ranges[i].split(".");
        names.forEach((name, j) => labels.set(`${chain}.${level}.${Number(range.split("-")[0]) + j}`, name));
      });
      drawSoon();
    }
    setTimeout(() => naming.delete(address), 1000);
  }

  // Choosing and moving

  let asking = 0;
  function choose(cell) {
    chosen = cell;
    clearTimeout(asking);
    if (!cell) { words.textContent = ""; drawSoon(); return; }
    const { shape } = blocks[cell.chain], box = boxOf(cell.chain, shape.drawn, cell.leaf);
    if (box.y < frame.scrollTop + HEAD) frame.scrollTop = box.y - HEAD - 20;
    else if (box.y + box.h > frame.scrollTop + height) frame.scrollTop = box.y + box.h - height + 20;
    asking = setTimeout(() => htmx.ajax("GET", `/page/cells/one?at=${addressOf(cell)}`, { target: "#cell-words", swap: "innerHTML" }), 120);
    drawSoon();
  }

  /** The drawn cell at a place, as the service is asked about it. */
  function addressOf(cell) {
    const { shape } = blocks[cell.chain], index = Math.floor(cell.leaf / shape.leaves[shape.drawn]);
    return `${cell.chain}.${shape.drawn}.${index}-${index + 1}`;
  }

  function open() {
    if (!chosen) return;
    const { shape, chain } = blocks[chosen.chain], level = Math.max(shape.drawn, 2);
    const live = document.getElementById("live"), address = `/page/cluster?in=${chosen.chain}.${Math.min(level, chain.types.length)}.${Math.floor(chosen.leaf / shape.leaves[level])}`;
    if (section.dataset.only || !live) { window.location.href = `${address}#cells-table`; return; }
    htmx.ajax("GET", address, { target: "#live", swap: "innerHTML" });
    window.history.replaceState(null, "", address);
    document.getElementById("cells-table").scrollIntoView();
  }

  function zoom(step) {
    const next = Math.max(0, Math.min(SCALES.length - 1, scale + step));
    if (next === scale) return;
    const keep = chosen || cellNear(width / 2, frame.scrollTop + height / 2);
    isFitted = false;
    scale = next;
    place(keep);
  }

  function cellNear(x, y) {
    for (let far = 0; far < 400; far += 6) {
      for (const [across, down] of [[0, far], [0, -far], [far, 0], [-far, 0], [-far, -far], [far, far]]) {
        const cell = cellAt(x + across, y + down);
        if (cell) return cell;
      }
    }
    return null;
  }

  function move(across, down) {
    if (!chosen) { choose(cellNear(MARGIN + 2, frame.scrollTop + HEAD + 2)); return; }
    const { shape, chain } = blocks[chosen.chain], count = shape.leaves[shape.drawn];
    const leaf = Math.floor(chosen.leaf / count) * count;
    if (across) {
      const next = leaf + across * count, last = chain.roots * shape.leaves[shape.levels];
      if (next >= 0 && next < last) choose({ chain: chosen.chain, leaf: next });
      return;
    }
    const box = boxOf(chosen.chain, shape.drawn, leaf);
    for (let far = 1; far < 600; far += 3) {
      const cell = cellAt(box.x + box.w / 2, down > 0 ? box.y + box.h + far : box.y - far);
      if (cell) { choose(cell); return; }
    }
  }

  // A pointer that rests on a cell reads about it: the same words as of a chosen one, without its links.

  const tip = document.getElementById("cell-tip");
  let pointed = "", resting = 0, told = new Map();

  function pointedAt(event) {
    const bounds = canvas.getBoundingClientRect();
    return cellAt(event.clientX - bounds.left, event.clientY - bounds.top + frame.scrollTop);
  }

  function point(event) {
    const cell = event.pointerType === "touch" || !layout ? null : pointedAt(event), address = cell ? addressOf(cell) : "";
    if (address !== pointed) {
      clearTimeout(resting);
      tip.hidden = true;
      pointed = address;
      if (address) resting = setTimeout(tell, 150, address);
    }
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18, isLow = below + tip.offsetHeight > window.innerHeight - 8;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${isLow ? Math.max(4, event.clientY - tip.offsetHeight - 10) : below}px`;
  }

  async function tell(address) {
    const known = told.get(address);
    let lines = known && Date.now() - known.at < POLL_MS ? known.lines : null;
    if (!lines) {
      const answer = await fetch(`/page/cells/one?at=${address}`, { cache: "no-cache", headers: { Accept: "text/html" } }).catch(() => null);
      if (!answer || !answer.ok) return;
      const words = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const each of words.querySelectorAll(".more")) each.remove();
      lines = [...words.querySelectorAll("p, li")].map((each) => each.textContent.replace(/\s+/g, " ").trim());
      if (told.size > 200) told = new Map();
      told.set(address, { at: Date.now(), lines });
    }
    if (address !== pointed) return;
    tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })));
    tip.hidden = false;
  }

  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", () => { clearTimeout(resting); tip.hidden = true; pointed = ""; });
  canvas.addEventListener("click", (event) => choose(pointedAt(event)));
  canvas.addEventListener("dblclick", () => zoom(2 * STEP));
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (steps[event.key]) move(...steps[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(STEP);
    else if (event.key === "-") zoom(-STEP);
    else if (event.key === "0") { isFitted = true; place(chosen); }
    else if (event.key === "Enter") open();
    else if (event.key === "Escape") choose(null);
    else if (event.key === "PageDown") frame.scrollTop += height * 0.9;
    else if (event.key === "PageUp") frame.scrollTop -= height * 0.9;
    else return;
    event.preventDefault();
  });
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 2 : -2);
  }, { passive: false });
  frame.addEventListener("scroll", drawSoon, { passive: true });
  document.getElementById("zoom-in").addEventListener("click", () => zoom(STEP));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(-STEP));
  document.getElementById("zoom-fit").addEventListener("click", () => { isFitted = true; place(chosen); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); drawSoon(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && layout) fetchTiles(); });
  new IntersectionObserver((seen) => { isSeen = seen[seen.length - 1].isIntersecting; }).observe(canvas);

  section.hidden = false;
  readColours();
  new ResizeObserver(resizeSoon).observe(frame);
  window.addEventListener("resize", resizeSoon);
  fetchLayout();
})();
