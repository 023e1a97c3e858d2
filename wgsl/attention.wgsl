{#- FLASH_ATTN_EXT. One workgroup per {{ rows }} query rows that share keys and values: the heads of a group, then the
    tokens. It walks the keys in blocks of one key per thread and keeps a running maximum and sum (online softmax).

    Switches: rows (1, 2 or 4), head_size and value_size, value_lanes (threads over which a value's elements are spread),
    shared_heads (query heads per key head), has_mask, has_sinks, capped (logit soft cap). -#}
{% import "reduce" as reduce %}
{%- set type = "f32" if rows == 1 else "vec" ~ rows ~ "<f32>" %}
{%- set lanes = value_lanes %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", type, wg, subgroups) }}
{{- reduce.largest("group_max", type, wg, subgroups) }}
{%- set elements = (value_size + lanes - 1) // lanes %}
{%- set parts = wg // lanes %}
// One component per query row.
alias Rows = {{ type }};

// Below every unmasked logit; WGSL has no infinity to write down.
const LOWEST = -3.0e38;

var<workgroup> query: array<Rows, {{ head_size }}>;
var<workgroup> weights: array<Rows, {{ wg }}>;

// A query row: its head, and its token.
fn head_of(row: u32, kv_head: u32) -> u32 {
    return kv_head * {{ shared_heads }}u + row % {{ shared_heads }}u;
}

fn token_of(row: u32) -> u32 {
    return row / {{ shared_heads }}u;
}

fn slope_of(head: u32) -> f32 {
    return exp2(select(p.late_slope * f32(2u * (head - min(head, p.early_heads)) + 1u), p.early_slope * f32(head + 1u), head < p.early_heads));
}

// e^(value - top), and 0 for a masked value even where everything is masked.
fn weight(value: Rows, top: Rows) -> Rows {
    return select(exp(value - top), Rows(), value <= Rows(LOWEST));
}

@compute @workgroup_size({{ wg }})
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let local = thread.local;
    let query_rows = p.tokens * {{ shared_heads }}u;
    let blocks = (query_rows + {{ rows - 1 }}u) / {{ rows }}u;
    let work = group_index(group, groups);
    let kv_head = work / blocks % p.kv_heads;
    let batch = work / (blocks * p.kv_heads);
    if (batch >= p.batches) {
        return;
    }
    let first_row = work % blocks * {{ rows }}u;
{%- for row in range(rows) %}
    // Rows past the end repeat the last one and are not stored.
    let row{{ row }} = min(first_row + {{ row }}u, query_rows - 1u);
    let head{{ row }} = head_of(row{{ row }}, kv_head);
    let token{{ row }} = token_of(row{{ row }});
    let q{{ row }} = token{{ row }} * p.q_nb1 + head{{ row }} * p.q_nb2 + batch * p.q_nb3;
{%- if has_mask %}
    let mask{{ row }} = token{{ row }} * p.mask_nb1 + (head{{ row }} % p.mask_ne2) * p.mask_nb2 + (batch % p.mask_ne3) * p.mask_nb3;
{%- endif %}
{%- endfor %}
{%- if has_mask %}
    let slope = Rows({% for row in range(rows) %}slope_of(head{{ row }}), {% endfor %});
{%- endif %}
    let k = kv_head * p.k_nb2 + batch / p.repeat3 * p.k_nb3;
    let v = kv_head * p.v_nb2 + batch / p.repeat3 * p.v_nb3;
    for (var i = local; i < {{ head_size }}u; i += {{ wg }}u) {
        query[i] = Rows({% for row in range(rows) %}q_load(q{{ row }} + i), {% endfor %}) * p.scale;
    }
    workgroupBarrier();

    // Of the values, a thread adds up elements {{ lanes }} apart, in every {{ parts }}th row of a block.
    let own_element = local % {{ lanes }}u;
    let own_part = local / {{ lanes }}u;
    var values: array<Rows, {{ elements }}>;
    var top = Rows(LOWEST);
    var sum = Rows();
    for (var start = 0u; start < p.keys; start += {{ wg }}u) {
        let key = start + local;
        var logit = Rows(LOWEST);
        if (key < p.keys) {
{%- if has_mask %}
            let mask = slope * Rows({% for row in range(rows) %}mask_load(mask{{ row }} + key), {% endfor %});
            if ({% if rows == 1 %}mask > LOWEST{% else %}any(mask > Rows(LOWEST)){% endif %}) {
{%- else %}
            {
{%- endif %}
                logit = Rows();
                for (var i = 0u; i < {{ head_size }}u; i++) {
                    logit += query[i] * k_load(k + key * p.k_nb1 + i);
                }
{%- if capped %}
                // Some drivers give NaN for the tanh of a large argument.
                logit = p.cap * tanh(clamp(logit, Rows(-15.0), Rows(15.0)));
{%- endif %}
{%- if has_mask %}
                logit = select(logit + mask, mask, mask <= Rows(LOWEST));
{%- endif %}
            }
        }
        let block_top = group_max(logit, thread);
        let new_top = max(top, block_top);
        let fade = exp(top - new_top);
        top = new_top;
        let own_weight = weight(logit, top);
        sum = sum * fade + own_weight;
        weights[local] = own_weight;
        workgroupBarrier();
        // A block that is masked for all rows adds nothing.
        if ({% if rows == 1 %}block_top > LOWEST{% else %}any(block_top > Rows(LOWEST)){% endif %}) {
            let count = min({{ wg }}u, p.keys - start);
{%- for element in range(elements) %}
            values[{{ element }}] *= fade;
{%- endfor %}
            for (var i = own_part; i < count; i += {{ parts }}u) {
                // A masked cell may hold anything, NaN too.
                if ({% if rows == 1 %}weights[i] == 0.0{% else %}all(weights[i] == Rows()){% endif %}) {
                    continue;
                }
                let at = v + (start + i) * p.v_nb1 + own_element;
{%- for element in range(elements) %}
{%- if (element + 1) * lanes <= value_size %}
                values[{{ element }}] += weights[i] * v_load(at + {{ element * lanes }}u);
{%- else %}
                if (own_element < {{ value_size - element * lanes }}u) {
                    values[{{ element }}] += weights[i] * v_load(at + {{ element * lanes }}u);
                }
{%- endif %}
{%- endfor %}
            }
        }
    }
    sum = group_sum(sum, thread);
    var scale = Rows(1.0);
{%- if has_sinks %}
    let sinks = Rows({% for row in range(rows) %}sinks_load(head{{ row }}), {% endfor %});
    let new_top = max(top, sinks);
    scale = exp(top - new_top);
    sum = sum * scale + exp(sinks - new_top);
{%- endif %}
    scale = select(scale / sum, Rows(), sum == Rows());
{%- for element in range(elements) %}
    // The parts of one element lie {{ lanes }} threads apart.
    workgroupBarrier();
    weights[local] = values[{{ element }}] * scale;
    workgroupBarrier();
    if (own_part == 0u{% if (element + 1) * lanes > value_size %} && own_element < {{ value_size - element * lanes }}u{% endif %}) {
        var total = weights[local];
{%- for part in range(1, parts) %}
        total += weights[local + {{ part * lanes }}u];
{%- endfor %}
{%- for row in range(rows) %}
        if (first_row + {{ row }}u < query_rows) {
            y_store(((batch * p.tokens + token{{ row }}) * {{ shared_heads }}u * p.kv_heads + head{{ row }}) * {{ value_size }}u + own_element + {{ element * lanes }}u, total{% if rows > 1 %}[{{ row }}]{% endif %});
        }
{%- endfor %}
    }
{%- endfor %}
}
