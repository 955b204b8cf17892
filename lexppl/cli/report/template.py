"""The report's page, as a Jinja2 template: one file, nothing loaded from elsewhere."""

TEMPLATE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="lexppl {{ version }}">
<title>{{ title }}</title>
<style>
:root { --ink: #1d2733; --soft: #5b6876; --line: #dde3ea; --paper: #ffffff; --tint: #f4f7fa;
  --accent: #1f6fb2; --bar: #a9cbe8; --warn: #8a5a00; --warn-tint: #fff6e0; }
* { box-sizing: border-box; }
html { color-scheme: light; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans",
  sans-serif; font-size: 1rem; }
main { max-width: 58rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
header { border-bottom: 2px solid var(--ink); padding-bottom: 1rem; margin-bottom: 1.4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .6rem 0; max-width: 46rem; }
.soft, figcaption, .note { color: var(--soft); font-size: .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem;
  margin: 1.4rem 0; }
.fact { background: var(--tint); border-radius: .5rem; padding: .8rem 1rem; }
.fact b { display: block; font-size: 1.5rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.fact span { color: var(--soft); font-size: .85rem; }
.warning { background: var(--warn-tint); border-left: 4px solid var(--warn); padding: .6rem 1rem;
  margin: 1rem 0; border-radius: 0 .4rem .4rem 0; }
.warning p { margin: .2rem 0; }
figure { margin: 1rem 0 1.4rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { margin-top: .5rem; max-width: 46rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; margin: .6rem 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--soft); }
th:first-child, td:first-child { text-align: left; white-space: normal; }
tr.lost td { color: var(--soft); } tr.lost .bar { opacity: .45; }
td.track { width: 34%; min-width: 7rem; padding-left: 0; }
.narrow th, .narrow td { padding-left: .35rem; padding-right: .35rem; font-size: .88rem; }
.narrow td.track { width: 12%; min-width: 4rem; }
.bar { position: relative; height: 1.05rem; margin-top: .2rem; background: var(--tint);
  border-radius: .15rem; }
.bar i { position: absolute; left: 0; top: 0; bottom: 0; background: var(--bar);
  border-radius: .15rem; }
.bar u { position: absolute; top: .45rem; height: 2px; background: var(--accent); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: .6rem 0;
  font-size: .93rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.5; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--accent); }
footer { border-top: 1px solid var(--line); margin-top: 3rem; padding-top: .8rem; }
@media (max-width: 40rem) {
  main { padding: 1.2rem .9rem 3rem; } h1 { font-size: 1.4rem; }
  th, td { padding: .34rem .3rem; font-size: .8rem; } td.track, th.track { display: none; }
  th:first-child, td:first-child { padding-left: 0; overflow-wrap: anywhere; min-width: 6.5rem; }
  .facts { grid-template-columns: 1fr 1fr; gap: .6rem; } .fact b { font-size: 1.25rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
}
@media print {
  @page { margin: 16mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .fact, pre, .bar, .bar i, .bar u, .warning { -webkit-print-color-adjust: exact;
    print-color-adjust: exact; }
  figure, .facts, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .wide, pre { overflow: visible; white-space: pre-wrap; }
  figure img { max-height: 110mm; } h2 { margin-top: 1.2rem; } p { max-width: none; }
  th, td { padding: .18rem .5rem; } .facts { grid-template-columns: repeat(4, 1fr); }
}
</style>
</head>
<body>
<main>
<header>
<h1>{{ title }}</h1>
<p class="soft">{{ subtitle }}</p>
</header>

<p>{{ lead }}</p>

<div class="facts">
{% for fact in facts %}<div class="fact"><b>{{ fact.value }}</b><span>{{ fact.what }}</span></div>
{% endfor %}</div>

{% if warnings %}<div class="warning" role="note">
{% for warning in warnings %}<p><strong>Mind:</strong> {{ warning }}</p>
{% endfor %}</div>{% endif %}

<h2>What matters</h2>
<figure><img src="{{ pictures.importance }}" alt="Ranked features with their {{ kind.label }} \
and its interval over replicates">
<figcaption>Of held-out rows, {{ kind.meaning }}, averaged over rows and \
replicates{% if replicates > 1 %}, with its 95&nbsp;% interval over the {{ replicates }} replicates\
{% endif %}.</figcaption></figure>

{% macro ranking(lines) %}<div class="wide{% if ranking_note %} narrow{% endif %}"><table>
<thead><tr><th>feature</th><th class="track"></th>\
{% for cell in ranking_head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in lines %}<tr{% if line.lost %} class="lost"{% endif %}><td>{{ line.name }}</td>\
<td class="track"><div class="bar">\
<i style="width:{{ line.width }}%"></i>{% if line.span is not none %}<u style="left:\
{{ line.left }}%;width:{{ line.span }}%"></u>{% endif %}</div></td>\
{% for cell in line.cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>{% endmacro %}
{{ ranking(first_features) }}
{% if ranking_note %}<p class="note">{{ ranking_note }}</p>{% endif %}
{% if more_features %}<details><summary>{{ more_features | length }} more features</summary>
{{ ranking(more_features) }}</details>{% endif %}

<h2>How to read this</h2>
{% for paragraph in reading %}<p>{{ paragraph }}</p>
{% endfor %}

<h2>Row by row</h2>
<figure><img src="{{ pictures.rows }}" alt="Heat map of rows by features: {{ kind.meaning }}">
<figcaption>{{ rows_caption }}</figcaption></figure>

<h2>Do the chosen features suffice?</h2>
<div class="wide"><table>
<thead><tr>{% for cell in scores.head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for line in scores.rows %}<tr>{% for cell in line %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% for note in score_notes %}<p class="note">{{ note }}</p>
{% endfor %}
{% if pictures.sizes %}<figure><img src="{{ pictures.sizes }}" alt="{{ sizes_alt }}">
<figcaption>{{ sizes_caption }}</figcaption></figure>{% endif %}

{% if pictures.path %}<h2>How dear is a feature?</h2>
<figure><img src="{{ pictures.path }}" alt="Features kept and held-out log-likelihood against the \
penalty"><figcaption>{{ path_caption }}</figcaption></figure>
{% endif %}

<h2>How the fit went</h2>
<figure><img src="{{ pictures.history }}" alt="Training and validation loss by epoch">
<figcaption>The loss by epoch, a line a replicate, in nats a row. The validation loss is measured \
with the penalty at its full weight; each replicate keeps the state of its lowest point. While the \
training loss still counts the fading entropy bonus and a growing penalty, the two curves are not \
alike.</figcaption></figure>

<h2>What was run</h2>
<pre><code>{{ command }}</code></pre>
<dl>{% for name, value in settings %}<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}</dl>

<h3>Files beside this page</h3>
<dl>{% for name, meaning in files %}<dt><code>{{ name }}</code></dt><dd>{{ meaning }}</dd>
{% endfor %}</dl>
<h3>To go on in Python</h3>
<pre><code>{{ snippet }}</code></pre>

<footer class="soft">Made by lexppl {{ version }}. Method: Senetaire, Garreau, Frellsen, Mattei, \
<cite>Explainability as statistical inference</cite>, ICML 2023.</footer>
</main>
</body>
</html>
"""
