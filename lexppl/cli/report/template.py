"""The report's page, as a Jinja2 template: one file, nothing loaded from elsewhere."""

from lexppl.cli.report.styles import STYLES

START = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="lexppl {{ version }}">
<title>{{ title }}</title>
<style>
"""
"""Before the styles."""

OPENING = """\
</style>
</head>
<body>
{% macro picture(one, alt) %}<picture><source media="(max-width: 40rem)" \
srcset="{{ one.narrow }}"><img src="{{ one.wide }}" alt="{{ alt }}"></picture>{% endmacro %}
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

"""
"""After them, to what was found."""

RANKING = """\
<h2>What matters</h2>
{% macro ranking(lines, name) %}<div class="wide" tabindex="0" role="region" \
aria-label="{{ name }}"><table class="ranking">
<thead><tr><th scope="col">feature</th>{% if gains %}<th scope="col">gain</th>\
<th scope="col" class="extra">95&nbsp;% interval</th><th scope="col" class="extra">found</th>\
{% endif %}{% if about %}<th scope="col">direction{% if kind.name == "probability" %} \
({{ about }}){% endif %}</th>{% endif %}\
<th scope="col">{{ "kept" if kind.name == "probability" else kind.name }}</th>\
<th scope="col" class="extra">95&nbsp;% interval</th>\
<th scope="col" class="extra">{{ consistency }}</th></tr></thead>
<tbody>
{% for line in lines %}<tr{% if line.lost %} class="lost"{% endif %}>\
<th scope="row">{{ line.name }}<span class="bar"><i style="left:{{ line.bar.left }}%;\
width:{{ line.bar.width }}%"></i>{% if line.span %}<u style="left:{{ line.span.left }}%;\
width:{{ line.span.width }}%"></u>{% endif %}{% if line.zero %}<s style="left:{{ line.zero }}%">\
</s>{% endif %}</span></th>\
{% for cell in line.gain %}<td{% if not loop.first %} class="extra"{% endif %}>{{ cell }}</td>\
{% endfor %}{% if about %}<td class="words">{{ line.direction }}</td>{% endif %}\
<td>{{ line.importance }}</td><td class="extra">{{ line.interval }}</td>\
<td class="extra">{{ line.agreement }}</td></tr>
{% endfor %}</tbody></table></div>{% endmacro %}
{{ ranking(first_features, "Ranked features") }}
{% for note in ranking_notes %}<p class="note">{{ note }}</p>
{% endfor %}
{% if more_features %}<details><summary>{{ more_features | length }} more features</summary>
{{ ranking(more_features, "More ranked features") }}</details>{% endif %}

<figure>{{ picture(pictures.swarm, "A line of points for each of the first features, a point a \
held-out row, coloured by the feature's value") }}
<figcaption>{{ swarm_caption }}</figcaption></figure>

{% if classes %}<h2>Which way, by class</h2>
<div class="wide" tabindex="0" role="region" aria-label="Directions by class"><table class="scores">
<thead><tr>{% for cell in classes.head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for line in classes.rows %}<tr>{% for cell in line %}{% if loop.first %}\
<th scope="row">{{ cell }}</th>{% else %}<td class="words">{{ cell }}</td>{% endif %}{% endfor %}\
</tr>
{% endfor %}</tbody></table></div>
<p class="note">How the log-odds of each class that the explainer predicts move with the feature's \
value, from −1 to 1, over the held-out rows that keep the feature: ↑ rises with the value, \
↓ falls, ~ neither throughout; of words, the levels that raise and lower it most, by more \
than replicates differ.\
{% if classes.left_out %} {{ classes.left_out }} more classes are in directions.csv.\
{% endif %}</p>{% endif %}

{% if dependences %}<h2>When is a feature kept?</h2>
<figure><div class="side">
{% for name, uri in dependences %}<img src="{{ uri }}" alt="{{ kind.label }} of {{ name }} against \
its value">
{% endfor %}</div>
<figcaption>Each point is a held-out row: {{ kind.meaning }}, against the feature's value, mean \
over replicates{% if replicates > 1 %}; thin lines go from the lowest to the highest replicate\
{% endif %}. A flat cloud is a feature that matters alike whatever its value.</figcaption></figure>
{% endif %}

<h2>How to read this</h2>
{% for paragraph in reading %}<p>{{ paragraph }}</p>
{% endfor %}

"""
"""What was found of the features of a table."""

SINGLE_ROWS = """\
<h2>Row by row</h2>
{% for row in single_rows %}<section class="row" aria-labelledby="row-{{ row.number }}">
<h3 id="row-{{ row.number }}">Row {{ row.number }}: {{ row.predicted }}</h3>
<p class="soft">Observed: {{ row.observed }}. {{ row.why }}.{% if row.classes %} By class: \
{% for c in row.classes %}{{ c.name }}: {{ c.share }} (base rate {{ c.base }})\
{{ ", " if not loop.last else "" }}{% endfor %}{% if row.more_classes %}, and \
{{ row.more_classes }} more{% endif %}.{% endif %}</p>
<table class="steps"><thead><tr><th scope="col">feature and value</th>\
<th scope="col" class="track"><span class="unseen">bar</span></th>\
<th scope="col">{{ row.step_name }}</th><th scope="col">{{ row.total_name }}</th></tr></thead>
<tbody>{% for bar in row.bars %}<tr{% if bar.level %} class="level"{% endif %}>\
<th scope="row">{{ bar.name }}{% if bar.value %} <span class="value">= {{ bar.value }}</span>\
{% endif %}</th><td class="track"><span class="bar"><i class="{{ "at" if bar.level else \
("up" if bar.rises else "down") }}" style="left:{{ bar.left }}%{% if not bar.level %};\
width:{{ bar.width }}%{% endif %}"></i></span></td><td>{{ bar.step }}</td>\
<td>{{ bar.total }}</td></tr>
{% endfor %}</tbody></table></section>
{% endfor %}
{% if single_rows %}<p class="note">{{ single_note }}</p>{% endif %}
"""
"""Single rows, step by step."""

HEAT_MAP = """\
<figure>{{ picture(pictures.rows, "Heat map of rows by features: " ~ kind.meaning) }}
<figcaption>{{ rows_caption }}</figcaption></figure>

"""
"""The rows of a table."""

CHOICE = """\
{% if choice %}<h2>{{ question }}</h2>
<p>{{ choice }}</p>
<p class="note">A prediction could lean on which features were kept, and not on their values: a \
feature that is kept only where the answer is yes says yes whatever it holds. Asked of held-out \
rows, of the replicate that validates best: what networks predict from the kept values and their \
having been chosen, less what others predict from the same values alone \
(<cite>encode-meter</cite>, Puli, Nguyen &amp; Ranganath 2024). EVAL-X, below, does not see such a \
choice: it scores what was kept, by its values alone.</p>
{% endif %}
"""
"""Whether the choice of features tells, of a table."""

CLOSING = """\
<h2>Do the chosen features suffice?</h2>
<div class="wide" tabindex="0" role="region" aria-label="Held-out scores"><table class="scores">
<thead><tr>{% for cell in scores.head %}<th scope="col"\
{% if loop.index == 2 %} class="extra"{% endif %}>{{ cell or "who" }}</th>{% endfor %}</tr>\
</thead>
<tbody>{% for line in scores.rows %}<tr>{% for cell in line %}{% if loop.first %}\
<th scope="row">{{ cell }}</th>{% else %}<td\
{% if loop.index == 2 %} class="extra"{% endif %}>{{ cell.value }}{% if cell.spread %}\
<span class="extra"> ± {{ cell.spread }}</span>{% endif %}</td>{% endif %}{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% for note in score_notes %}<p class="note">{{ note }}</p>
{% endfor %}
{% if pictures.sizes %}<figure>{{ picture(pictures.sizes, sizes_alt) }}
<figcaption>{{ sizes_caption }}</figcaption></figure>{% endif %}

{% if pictures.path %}<h2>How dear is a feature?</h2>
<figure>{{ picture(pictures.path, "Features kept and held-out log-likelihood against the \
penalty") }}<figcaption>{{ path_caption }}</figcaption></figure>
{% endif %}

{% if pictures.history %}<h2>How the fit went</h2>
<figure>{{ picture(pictures.history, "Training and validation loss by epoch") }}
<figcaption>The loss by epoch, a line a replicate, in nats a row. The validation loss is measured \
with the penalty at its full weight; each replicate keeps the state of its lowest point. While the \
training loss still counts the fading entropy bonus and a growing penalty, the two curves are not \
alike.</figcaption></figure>{% endif %}

<h2>What was run</h2>
<pre tabindex="0"><code>{{ command }}</code></pre>
<dl>{% for name, value in settings %}<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}</dl>

<h3>Files beside this page</h3>
<dl>{% for name, meaning in files %}<dt><code>{{ name }}</code></dt><dd>{{ meaning }}</dd>
{% endfor %}</dl>
<h3>To go on in Python</h3>
<pre tabindex="0"><code>{{ snippet }}</code></pre>

<footer class="soft">Made by lexppl {{ version }}. Method: Senetaire, Garreau, Frellsen, Mattei, \
<cite>Explainability as statistical inference</cite>, ICML 2023.</footer>
</main>
</body>
</html>
"""
"""The scores, the fit, and what was run."""

TEMPLATE = START + STYLES + OPENING + RANKING + SINGLE_ROWS + HEAT_MAP + CHOICE + CLOSING
