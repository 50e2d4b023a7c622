from tinygrad.helpers import (
    Context, ContextVar, all_same, ansilen, ansistrip, argfix, argsort, ceildiv, colored, count, dedup, flatten, fully_flatten,
    get_child, get_shape, getenv, make_tuple, merge_dicts, partition, polyN, prod, round_up, time_to_str, unwrap,
    word_wrap, size_to_str, strides_for_shape, all_int, next_power2, to_tuple, temp, round_down, pluralize,
)

print(prod([2, 3, 4]), prod([]), prod((1.5, 2)), all_same([1, 1]), all_same([]), all_same([1, 2]), dedup([3, 1, 3, 2, 1]))
print(argfix(1, 2), argfix((1, 2)), argfix([1, 2, 3]), argfix(), argsort([3, 1, 2]), ceildiv(10, 4), ceildiv(-10, 4), round_up(10, 4), round_down(10, 4))
print(repr(colored("x", "red")), repr(colored("x", "BLUE")), repr(colored("x", None)), repr(colored("x", "green", background=True)), ansistrip(colored("hi", "red")), ansilen(colored("hi", "red")))
print(flatten([[1, 2], [3]]), fully_flatten([1, [2, (3, [4])]]), fully_flatten("ab"), partition(range(6), lambda x: x % 2), merge_dicts([{"a": 1}, {"b": 2}]))
print(get_shape([[1, 2], [3, 4], [5, 6]]), get_shape(3), get_shape([]), polyN(2.0, [1, 2, 3]), make_tuple(3, 2), make_tuple((1, 2), 2), unwrap(5))
print(get_child({"a": [10, {"b": 7}]}, "a.1.b"), next(count(5)) if hasattr(count(5), "__next__") else 5, all_int((1, 2)), all_int((1, 2.0)), next_power2(5), to_tuple(3))
print(time_to_str(0.001), time_to_str(1.5), time_to_str(20), size_to_str(123456), size_to_str(12), strides_for_shape((2, 3, 4)), strides_for_shape((2, 1, 4)))
print(word_wrap("abcdefgh", 3), pluralize("kernel", 1), pluralize("kernel", 3), temp("x").endswith("x"))
for bad in (lambda: argfix((1, 2), 3), lambda: get_shape([[1], [2, 3]]), lambda: merge_dicts([{"a": 1}, {"a": 2}])):
    try:
        bad()
    except (ValueError, RuntimeError) as e:
        print(type(e).__name__)
print(getenv("NOT_SET_ANYWHERE"), repr(getenv("NOT_SET_ANYWHERE", "")), getenv("NOT_SET_ANYWHERE", 1.5), getenv("NOT_SET_ANYWHERE", 7))
FLAG = ContextVar("MY_OWN_FLAG", 3)
print(FLAG.value, FLAG == 3, FLAG > 2, bool(FLAG), FLAG != 3)
with Context(MY_OWN_FLAG=0):
    print(FLAG.value, bool(FLAG))
print(FLAG.value)
