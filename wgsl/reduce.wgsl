{#- Reductions over a workgroup, imported by kernels. Every thread of the workgroup gets the result.

    With subgroups, whatever their size: one reduction per subgroup, then over the subgroups' results. Without: a tree in
    workgroup memory, for workgroups of a power of two. -#}

{%- macro thread(subgroups) %}
// Where a thread stands in its workgroup.
struct Thread {
    @builtin(local_invocation_index) local: u32,
{%- if subgroups %}
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
{%- endif %}
}
{% endmacro %}

{%- macro sum(name, type, wg, subgroups) %}{{ over_group(name, type, "subgroupAdd", "+", wg, subgroups) }}{% endmacro %}

{%- macro largest(name, type, wg, subgroups) %}{{ over_group(name, type, "subgroupMax", "max", wg, subgroups) }}{% endmacro %}

{%- macro combine(operator, a, b) %}
{%- if operator == "max" %}max({{ a }}, {{ b }}){% else %}{{ a }} {{ operator }} {{ b }}{% endif %}
{%- endmacro %}

{%- macro over_group(name, type, within, operator, wg, subgroups) %}
var<workgroup> {{ name }}_parts: array<{{ type }}, {{ wg }}>;

fn {{ name }}(value: {{ type }}, thread: Thread) -> {{ type }} {
    // Results of the call before may still be read.
    workgroupBarrier();
{%- if subgroups %}
    let part = {{ within }}(value);
    if (thread.lane == 0u) {
        {{ name }}_parts[thread.subgroup] = part;
    }
    workgroupBarrier();
    var total = {{ name }}_parts[0];
    for (var i = 1u; i < thread.subgroups; i++) {
        total = {{ combine(operator, "total", name ~ "_parts[i]") }};
    }
    return total;
{%- else %}
    {{ name }}_parts[thread.local] = value;
    for (var half = {{ wg // 2 }}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread.local < half) {
            {{ name }}_parts[thread.local] = {{ combine(operator, name ~ "_parts[thread.local]", name ~ "_parts[thread.local + half]") }};
        }
    }
    workgroupBarrier();
    return {{ name }}_parts[0];
{%- endif %}
}
{% endmacro %}
