{#- GROUP_NORM, and L2_NORM, whose groups are rows. One workgroup per group of `per_group` of `channels` of `channel`
    elements, which in row-major order lie one after another.

    Switches: centred (GROUP_NORM), dense (the source is). -#}
{% import "reduce" as reduce %}
{% from "index" import unravel, strided %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
{%- if not dense %}{{ unravel() }}{{ strided("x") }}{% endif %}
fn x_value(i: u32) -> f32 {
{%- if dense %}
    return x_load(i);
{%- else %}
    return x_load(x_at(unravel(i, vec3<u32>(p.y_ne0, p.y_ne1, p.y_ne2))));
{%- endif %}
}

@compute @workgroup_size({{ wg }})
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let own = group_index(group, groups);
    if (own >= p.count) {
        return;
    }
    let batch = own / p.per_batch;
    let channel = own % p.per_batch * p.per_group;
    let length = min(p.per_group, p.channels - channel) * p.channel;
    let start = (batch * p.channels + channel) * p.channel;
    var mean = 0.0;
{%- for sum in (["value", "square"] if centred else ["square"]) %}
    {
        // Sums of a few elements each are summed: one running sum of all would lose digits.
        var sum = 0.0;
        for (var j = thread.local; j < length; j += {{ 16 * wg }}u) {
            var part = 0.0;
{%- for turn in range(16) %}
            if (j + {{ turn * wg }}u < length) {
                let value = x_value(start + j + {{ turn * wg }}u) - mean;
                part += value{% if sum == "square" %} * value{% endif %};
            }
{%- endfor %}
            sum += part;
        }
        let total = group_sum(sum, thread);
{%- if sum != "square" %}
        mean = total / f32(length);
{%- else %}
{%- if centred %}
        let scale = 1.0 / sqrt(total / f32(length) + p.eps);
{%- else %}
        let scale = 1.0 / max(sqrt(total), p.eps);
{%- endif %}
        for (var j = thread.local; j < length; j += {{ wg }}u) {
            y_store(start + j, (x_value(start + j) - mean) * scale);
        }
{%- endif %}
    }
{%- endfor %}
}
