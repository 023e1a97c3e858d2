{% from "index" import unravel, strided %}
{% from "activation" import function %}
{{ function(op) }}
{% if not dense %}{{ unravel() }}{{ strided("src") }}{{ strided("dst") }}{% endif %}

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
    {% if dense %}
    dst_store(i, act(src_load(i)));
    {% else %}
    let c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    dst_store(dst_at(c), act(src_load(src_at(c))));
    {% endif %}
}
