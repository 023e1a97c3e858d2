{#- `terms` says for each addend in which of the bound buffers it lies. -#}
{% from "index" import unravel, strided, repeated %}
{% set dense = src0_dense and addend == "dense" %}
{% if not dense %}{{ unravel() }}{% endif %}
{% if not src0_dense %}{{ strided("src0") }}{% endif %}
{% if addend == "strided" %}{{ strided("add") }}{% elif addend == "repeated" %}{{ repeated("add") }}{% endif %}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = thread_index(group, groups, local);
    if i >= p.count {
        return;
    }
    {% if not dense %}
    let c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    {% endif %}
    let at = {% if addend == "dense" %}i{% else %}add_at(c){% endif %};
    var sum = src0_load({% if src0_dense %}i{% else %}src0_at(c){% endif %});
    {% for place in terms %}
    sum += adds{{ place }}_load(at + p.delta{{ loop.index0 }});
    {% endfor %}
    dst_store(i, sum);
}
