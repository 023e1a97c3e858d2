{% from "index" import unravel, strided %}
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
    let source = i;
    let place = i;
    {% else %}
    let source = src_at(unravel(i, vec3<u32>(p.src_ne0, p.src_ne1, p.src_ne2)));
    let place = dst_at(unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2)));
    {% endif %}
    {% if wide %}
    dst_store_words(place, src_load(source), src_load_high(source));
    {% else %}
    dst_store(place, src_load(source));
    {% endif %}
}
