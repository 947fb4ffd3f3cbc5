//! Damage to JSON that is still JSON: values, keys and elements, at random places of the tree.

use serde_json::{Map, Number, Value};

use super::random::Random;

const NUMBERS: [f64; 14] = [
    0.0,
    -0.0,
    -1.0,
    0.5,
    1.0,
    1e-5,
    5e-324,
    1e-320,
    1e-16,
    1e16,
    1e300,
    1e308,
    f64::MAX,
    f64::MIN,
];

const INTEGERS: [u64; 15] = [
    0,
    1,
    2,
    3,
    5,
    11,
    12,
    13,
    255,
    1 << 32,
    u32::MAX as u64,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Damages the tree once; `other` is a tree to take from.
pub(crate) fn damage(value: &mut Value, other: &Value, random: &mut Random) {
    if random.percent(15) {
        return scale_some(value, random);
    }
    let at = random.below(count(value));
    let replacement = random.percent(12).then(|| {
        let mut other = other.clone();
        let at = random.below(count(&other));
        node(&mut other, at).take()
    });
    let chosen = node(value, at);
    match replacement {
        Some(replacement) => *chosen = replacement,
        None => change(chosen, random),
    }
}

/// Several numbers by one factor: what depends on ratios alone does not notice.
fn scale_some(value: &mut Value, random: &mut Random) {
    let factor = *random.pick(&[0.5, 2.0, 0.999, 1.001, 1.0 + 1e-9, 1e3, 1e-3, -1.0]);
    let nodes = count(value);
    let floats: Vec<usize> = (0..nodes).filter(|&at| node(value, at).is_f64()).collect();
    if floats.is_empty() {
        return;
    }
    for _ in 0..1 + random.below(4) {
        let chosen = node(value, *random.pick(&floats));
        let scaled = chosen.as_f64().and_then(|x| Number::from_f64(x * factor));
        if let Some(scaled) = scaled {
            *chosen = Value::Number(scaled);
        }
    }
}

fn change(value: &mut Value, random: &mut Random) {
    if random.percent(6) {
        let others = [Value::Null, Value::Bool(true), 0.into(), "".into(), Value::Array(vec![])];
        *value = random.pick(&others).clone();
        return;
    }
    match value {
        Value::Null => *value = (*random.pick(&INTEGERS)).into(),
        Value::Bool(bool) => *bool = !*bool,
        Value::Number(number) => *number = changed_number(number, random),
        Value::String(text) => change_string(text, random),
        Value::Array(items) => change_array(items, random),
        Value::Object(map) => change_object(map, random),
    }
}

fn changed_number(number: &Number, random: &mut Random) -> Number {
    if let Some(integer) = number.as_u64() {
        return match random.below(6) {
            0 => integer.saturating_add(1).into(),
            1 => integer.saturating_sub(1).into(),
            2 => (integer / 2).into(),
            3 => (-1_i64).into(),
            _ => (*random.pick(&INTEGERS)).into(),
        };
    }
    let x = number.as_f64().unwrap_or(0.0);
    let x = match random.below(8) {
        0 => x * 2.0,
        1 => x / 2.0,
        2 => x.next_up(),
        3 => x * (1.0 + *random.pick(&[1e-12, 1e-9, 1e-7, 1e-4])),
        4 => x * (1.0 - *random.pick(&[1e-12, 1e-9, 1e-7, 1e-4])),
        5 => -x,
        _ => *random.pick(&NUMBERS),
    };
    Number::from_f64(x).unwrap_or(0.into())
}

fn change_string(text: &mut String, random: &mut Random) {
    match random.below(4) {
        0 => text.clear(),
        1 => text.push('0'),
        2 => *text = text.repeat(2),
        _ => {
            let mut letters: Vec<char> = text.chars().collect();
            let at = random.below(letters.len());
            if let Some(letter) = letters.get_mut(at) {
                *letter = *random.pick(&['0', 'f', 'a', ' ', '\u{e9}', '\0', '"']);
            }
            *text = letters.into_iter().collect();
        }
    }
}

fn change_array(items: &mut Vec<Value>, random: &mut Random) {
    let at = random.below(items.len());
    let to = random.below(items.len());
    match random.below(4) {
        _ if items.is_empty() => items.push(0.into()),
        0 => drop(items.remove(at)),
        1 => items.insert(to, items[at].clone()),
        2 => items.swap(at, to),
        _ => items.truncate(at),
    }
}

fn change_object(map: &mut Map<String, Value>, random: &mut Random) {
    let keys: Vec<String> = map.keys().cloned().collect();
    if keys.is_empty() || random.percent(20) {
        map.insert("unheard_of".into(), 1.into());
        return;
    }
    let (key, other) = (random.pick(&keys), random.pick(&keys));
    match random.below(3) {
        0 => drop(map.remove(key)),
        1 => {
            let value = map.remove(key).unwrap_or_default();
            map.insert(other.clone(), value);
        }
        _ => {
            let (one, two) = (map[key].clone(), map[other].clone());
            map.insert(key.clone(), two);
            map.insert(other.clone(), one);
        }
    }
}

/// Nodes of the tree, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The node of this number, from the root down.
fn node(value: &mut Value, at: usize) -> &mut Value {
    if at == 0 {
        return value;
    }
    let mut left = at - 1;
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(map) => Box::new(map.values_mut()),
        _ => unreachable!("a leaf is one node"),
    };
    for child in children {
        let nodes = count(child);
        if left < nodes {
            return node(child, left);
        }
        left -= nodes;
    }
    unreachable!("the number is below the count")
}

/// Every leaf with its path, `plan.request.epsilon` or `strategy[3][0]`.
pub(crate) fn leaves(value: &Value) -> std::collections::BTreeMap<String, Value> {
    let mut found = std::collections::BTreeMap::new();
    collect_leaves(value, String::new(), &mut found);
    found
}

fn collect_leaves(
    value: &Value,
    path: String,
    found: &mut std::collections::BTreeMap<String, Value>,
) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_leaves(value, path, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_leaves(value, format!("{path}[{index}]"), found);
            }
        }
        leaf => drop(found.insert(path, leaf.clone())),
    }
}
