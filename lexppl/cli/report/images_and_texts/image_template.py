"""How images and texts look in a page, as Jinja2 templates."""

MAP_STYLES = """\
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .7rem;
  margin: .6rem 0 1rem; padding: 0; list-style: none; }
.maps.single { grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }
.maps li { font-size: .82rem; line-height: 1.35; color: var(--soft); overflow-wrap: anywhere; }
.maps img { display: block; width: 100%; height: auto; margin: 0 0 .25rem; filter: none; }
.maps img.small { image-rendering: pixelated; }
.maps b { color: var(--ink); font-weight: 600; }
.scale { display: flex; align-items: center; gap: .5rem; font-size: .85rem; color: var(--soft);
  flex-wrap: wrap; margin: .6rem 0; }
.scale i { display: inline-block; width: 8rem; height: .7rem; border: 1px solid var(--line);
  background: linear-gradient(to right, #ffffff, #1a80ba); }
.scale i.signed { background: linear-gradient(to right, #d96e1a, #ffffff, #1a80ba); }
.words { line-height: 1.9; max-width: 46rem; }
.words mark { color: var(--ink); background: none; padding: .1rem .12rem; border-radius: .2rem; }
.words .w1 { background: rgba(var(--for), .14); } .words .w2 { background: rgba(var(--for), .24); }
.words .w3 { background: rgba(var(--for), .34); } .words .w4 { background: rgba(var(--for), .43); }
.words .w5 { background: rgba(var(--for), .52); font-weight: 600; }
.words .o1 { background: rgba(var(--against), .14); }
.words .o2 { background: rgba(var(--against), .22); }
.words .o3 { background: rgba(var(--against), .3); }
.words .o4 { background: rgba(var(--against), .38); }
.words .o5 { background: rgba(var(--against), .46); font-weight: 600; }
:root { --for: 47, 127, 193; --against: 213, 94, 0; }
@media (prefers-color-scheme: dark) { :root { --for: 74, 150, 215; --against: 224, 110, 30; } }
@media (max-width: 40rem) {
  .maps { grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .5rem; }
  .maps.single { grid-template-columns: repeat(3, 1fr); }
}
@media print {
  .maps li, .words { break-inside: avoid; }
  .scale i, .words mark { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

IMAGE_PART = """\
{% macro tiles(these, kind="") %}<ul class="maps{{ kind }}">
{% for one in these %}<li><img src="{{ one.uri }}" alt="{{ one.alt }}" width="{{ one.width }}" \
height="{{ one.height }}"{% if one.height < 100 %} class="small"{% endif %}>\
{% for line in one.lines %}{% if loop.first %}<b>{{ line }}</b>{% else %}<br>{{ line }}{% endif %}\
{% endfor %}</li>
{% endfor %}</ul>{% endmacro %}
<h2>Where it looks</h2>
<p class="scale"><span>{{ parts.label }}</span><span>{{ parts.least }}</span>\
<i{% if parts.least != "0" %} class="signed"{% endif %}></i><span>{{ parts.most }}</span></p>
<p class="note">{{ parts.caption }}</p>
{% for group in parts.groups %}<h3>{{ group.heading }}</h3>
{{ tiles(group.tiles) }}
{% endfor %}
{% if parts.means %}<h2>On average, class by class</h2>
<p class="note">The mean map of all rows of a class, on their mean image. What is blue here is \
kept in most rows of the class; what a class keeps here and there is faint.</p>
{{ tiles(parts.means, " single") }}{% endif %}
<h2>Row by row</h2>
{% for row in parts.rows %}<section class="row" aria-labelledby="row-{{ loop.index }}">
<h3 id="row-{{ loop.index }}">{{ row.title }}</h3>
<p class="soft">{{ row.told }}</p>
{{ tiles(row.tiles, " single") }}</section>
{% endfor %}
<p class="note">The map, how far it is from sure, and draws of the mask, in which what is hidden \
is lilac.</p>
"""

TEXT_PART = """\
<h2>Which words it keeps</h2>
<p class="note">{{ parts.caption }}</p>
{% for group in parts.groups %}<h3>{{ group.heading }}</h3>
{% for row in group.rows %}<section class="row" aria-label="{{ row.title }}">
<p class="soft">{{ row.told }}</p>
<p class="words">{% for word in row.words %}{% if word.shade %}<mark class="{{ word.shade }}" \
title="{{ word.value }}">{{ word.text }}</mark>{% else %}{{ word.text }}{% endif %} {% endfor %}\
{% if row.left_out %}… and {{ row.left_out }} words more{% endif %}</p></section>
{% endfor %}{% endfor %}
"""
