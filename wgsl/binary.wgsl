{% from "index" import unravel, strided, repeated %}
{% from "activation" import function %}
{% if op == "silu_back" %}{{ function(op) }}{% endif %}
{% set dense = src0_dense and addend == "dense" %}
{% if not dense %}{{ unravel() }}{% endif %}
{% if not src0_dense %}{{ strided("src0") }}{% endif %}
{% if addend == "strided" %}{{ strided("src1") }}{% elif addend == "repeated" %}{{ repeated("src1") }}{% endif %}

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
    let a = src0_load({% if src0_dense %}i{% else %}src0_at(c){% endif %});
    let b = src1_load({% if addend == "dense" %}i{% else %}src1_at(c){% endif %});
    {% if op == "silu_back" %}
    dst_store(i, act_back(a, b));
    {% else %}
    dst_store(i, a {{ op }} b);
    {% endif %}
}
