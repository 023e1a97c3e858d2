{% from "index" import unravel, strided %}
{{ strided("src") }}
var<workgroup> partial: array<f32, {{ wg }}>;

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = group_index(group, groups);
    if row >= p.rows {
        return;
    }
    let plane = row / p.src_ne1;
    let cube = plane / p.src_ne2;
    let start = src_at(vec4<u32>(0u, row - plane * p.src_ne1, plane - cube * p.src_ne2, cube));
    var sum = 0.0;
    for (var i = local; i < p.src_ne0; i += {{ wg }}u) {
        sum += src_load(start + i * p.src_nb0);
    }
    partial[local] = sum;
    workgroupBarrier();
    for (var half = {{ wg }}u / 2u; half > 0u; half /= 2u) {
        if local < half {
            partial[local] += partial[local + half];
        }
        workgroupBarrier();
    }
    if local == 0u {
        dst_store(row, partial[0]);
    }
}
