{#- SUM_ROWS: one workgroup per row. -#}
{% import "reduce" as reduce %}
{% from "index" import strided %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
{{- strided("src") }}
@compute @workgroup_size({{ wg }})
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = group_index(group, groups);
    if row >= p.rows {
        return;
    }
    let plane = row / p.src_ne1;
    let cube = plane / p.src_ne2;
    let start = src_at(vec4<u32>(0u, row - plane * p.src_ne1, plane - cube * p.src_ne2, cube));
    var sum = 0.0;
    for (var i = thread.local; i < p.src_ne0; i += {{ wg }}u) {
        sum += src_load(start + i * p.src_nb0);
    }
    sum = group_sum(sum, thread);
    if thread.local == 0u {
        dst_store(row, sum);
    }
}
