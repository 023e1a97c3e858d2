{#- CROSS_ENTROPY_LOSS: one workgroup for many rows, since all end in one number.

    Switches: narrow (each thread takes rows of its own; otherwise all share every row), more (the result has the loss of
    earlier rows already). -#}
{% import "reduce" as reduce %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
{{- reduce.largest("group_max", "f32", wg, subgroups) }}
{%- set step = 1 if narrow else wg %}
// Below every logit that counts; WGSL has no infinity to write down.
const LOWEST = -3.0e38;

@compute @workgroup_size({{ wg }})
fn main(thread: Thread) {
{%- if narrow %}
    let first = 0u;
{%- else %}
    let first = thread.local;
{%- endif %}
    var total = 0.0;
    // Sums of a few rows each are summed: one running sum of all would lose digits.
    var part = 0.0;
    var parts = 0u;
    for (var row = p.first{% if narrow %} + thread.local{% endif %}; row < p.end; row += {{ wg if narrow else 1 }}u) {
        let i1 = row % p.x_ne1;
        let i2 = row / p.x_ne1 % p.x_ne2;
        let i3 = row / (p.x_ne1 * p.x_ne2);
        let x = i1 * p.x_nb1 + i2 * p.x_nb2 + i3 * p.x_nb3;
        let labels = i1 * p.labels_nb1 + i2 * p.labels_nb2 + i3 * p.labels_nb3;
        var top = LOWEST;
        for (var i = first; i < p.x_ne0; i += {{ step }}u) {
            top = max(top, x_load(x + i));
        }
{%- if not narrow %}
        top = group_max(top, thread);
{%- endif %}
        var sum = 0.0;
        for (var i = first; i < p.x_ne0; i += {{ step }}u) {
            let value = x_load(x + i);
            sum += select(exp(value - top), 0.0, value <= LOWEST);
        }
{%- if not narrow %}
        sum = group_sum(sum, thread);
{%- endif %}
        let log_sum = log(sum);
        var loss = 0.0;
        for (var i = first; i < p.x_ne0; i += {{ step }}u) {
            let label = labels_load(labels + i);
            // The logit of a label of 0 may be -infinity.
            if (label != 0.0) {
                loss -= label * (x_load(x + i) - top - log_sum);
            }
        }
        part += loss;
        parts += 1u;
        if (parts == 64u) {
            total += part;
            part = 0.0;
            parts = 0u;
        }
    }
    total = group_sum(total + part, thread);
    if (thread.local == 0u) {
{%- if more %}
        y_store(0u, y_data[p.y_offset] + total / f32(p.rows));
{%- else %}
        y_store(0u, total / f32(p.rows));
{%- endif %}
    }
}
