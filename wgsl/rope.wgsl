{#- ROPE: turns pairs of each row by an angle that grows with the position. One thread per pair, or per element that is
    only copied.

    Switches: mode (normal: pairs lie side by side, else half of the rotated part apart), sections (of the modes that have
    four positions for each token), back (turns the other way), has_factors (a divisor per frequency), yarn, bits (of a
    pair's number). -#}
// Angles and frequencies are fixed-point turns, 2^32 to the turn: position times frequency wraps around by itself, and the
// error stays the same wherever a token stands. Floats lose a digit of the angle with every digit of the position.
{%- set scaled = has_factors or yarn %}

// The upper word of a 64-bit product, rounded.
fn product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let middle = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (cross >> 16u) + (middle >> 16u) + ((middle >> 15u) & 1u);
}
{%- if scaled %}

// A frequency times a float: times the mantissa as a fraction below one, then shifted by the exponent.
fn scaled(frequency: u32, factor: f32) -> u32 {
    let bits = bitcast<u32>(factor);
    let mantissa = product(frequency, ((bits & 0x7fffffu) | 0x800000u) << 8u);
    let exponent = i32((bits >> 23u) & 0xffu) - 126;
    let magnitude = select(mantissa >> u32(clamp(-exponent, 0, 31)), mantissa << u32(clamp(exponent, 0, 31)), exponent >= 0);
    return select(magnitude, 0u - magnitude, bits >= 0x80000000u);
}
{%- endif %}

// Cosine and sine of a fixed-point angle: Taylor series of the at most 1/8 turn to the nearest quarter.
fn cos_sin(angle: u32) -> vec2<f32> {
    let quarter = (angle + 0x20000000u) >> 30u;
    let x = f32(bitcast<i32>(angle - (quarter << 30u))) * 1.4629180792671596e-9;
    let s = x * x;
    let sine = x * (1.0 + s * (-1.6666667e-1 + s * (8.3333333e-3 + s * (-1.9841270e-4 + s * 2.7557319e-6))));
    let cosine = 1.0 + s * (-0.5 + s * (4.1666667e-2 + s * (-1.3888889e-3 + s * (2.4801587e-5 - s * 2.7557319e-7))));
    let turned = select(vec2(cosine, sine), vec2(-sine, cosine), (quarter & 1u) == 1u);
    return select(turned, -turned, (quarter & 2u) == 2u);
}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let index = thread_index(group, groups, local);
    if (index >= p.count) {
        return;
    }
    let per_row = p.y_ne0 - p.pairs;
    let pair = index % per_row;
    let row = index / per_row;
    let token = row / p.y_ne1 % p.y_ne2;
    let x = row % p.y_ne1 * p.x_nb1 + token * p.x_nb2 + row / (p.y_ne1 * p.y_ne2) * p.x_nb3;
    let y = row * p.y_ne0;
    if (pair >= p.pairs) {
        // The rest of the row, before and after the part that turns.
        let rest = pair - p.pairs;
        let at = select(rest + 2u * p.pairs, rest, rest < p.first_dim);
        y_store(y + at, x_load(x + at));
        return;
    }
{%- if sections %}
{%- set second = sections[0] %}
{%- set third = second + sections[1] %}
{%- set fourth = third + sections[2] %}
    let at = pair % {{ fourth + sections[3] }}u;
{%- if mode == "imrope" %}
    let third = at % 3u;
    let axis = select(3u, third, at < 3u * vec3({{ sections[0] }}u, {{ sections[1] }}u, {{ sections[2] }}u)[third]);
{%- else %}
    let axis = u32(at >= {{ second }}u) + u32(at >= {{ third }}u) + u32(at >= {{ fourth }}u);
{%- endif %}
    let position = positions_load(token + axis * p.y_ne2);
{%- else %}
    let position = positions_load(token);
{%- endif %}
{%- if mode == "vision" %}
    // Frequencies start anew in each section.
    let step = at - vec4(0u, {{ second }}u, {{ third }}u, {{ fourth }}u)[axis];
{%- else %}
    let step = pair;
{%- endif %}
    // frequency = fastest · ratio^step, one factor ratio^(2^bit) per bit of the step.
    var frequency = p.fastest;
{%- for bit in range(bits) %}
    if ((step & {{ 2 ** bit }}u) != 0u) {
        frequency = product(frequency, p.ratio{{ bit }});
    }
{%- endfor %}
{%- if scaled %}
    var factor = 1.0;
{%- if yarn %}
    // Slow pairs are interpolated (by the frequency scale), fast ones left as they are.
    let ramp = 1.0 - clamp((f32(pair) - p.ramp_start) / p.ramp_length, 0.0, 1.0);
    factor = mix(p.freq_scale, 1.0, ramp * p.ext_factor);
{%- endif %}
{%- if has_factors %}
    factor /= factors_load(pair);
{%- endif %}
    frequency = scaled(frequency, factor);
{%- endif %}
    var turn = cos_sin(frequency * u32(position)) * p.magnitude;
{%- if back %}
    turn.y = -turn.y;
{%- endif %}
{%- if mode == "normal" %}
    let first = p.first_dim + 2u * pair;
    let second = first + 1u;
{%- else %}
    let first = p.first_dim + pair;
    let second = first + p.pairs;
{%- endif %}
    let from_first = x_load(x + first);
    let from_second = x_load(x + second);
    y_store(y + first, from_first * turn.x - from_second * turn.y);
    y_store(y + second, from_first * turn.y + from_second * turn.x);
}
