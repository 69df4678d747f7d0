/* The C kernel: every operation of dpf/_portable.py at the speed of the AES instructions, noise and placement.
 *
 * This file checks sizes, releases the GIL and picks an instruction set at run time; the arithmetic is in
 * dpf_body.h, noise.h and placement.h. The protocol is defined by the Python code, not by anything here, and tests
 * compare the two.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"
#include "noise.h"
#include "placement.h"

static const kernel_t *active;

/* ---- checks ---- */

static int refuse(const char *what) {
    PyErr_Format(PyExc_ValueError, "kernel: %s", what);
    return 0;
}

/* A product that saturates instead of wrapping around: SIZE_MAX is larger than any buffer. */
static size_t times(size_t a, size_t b) {
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* A buffer must have exactly the size that the other arguments imply, and be aligned for its elements. */
static int fits(const Py_buffer *buffer, size_t count, size_t each, size_t alignment, const char *name) {
    if ((size_t)buffer->len != times(count, each)) {
        PyErr_Format(PyExc_ValueError, "kernel: %s has %zd bytes, expected %zu", name, buffer->len, times(count, each));
        return 0;
    }
    if ((uintptr_t)buffer->buf % alignment) return refuse("a buffer is not aligned to its elements");
    return 1;
}

static int row_shape(Py_ssize_t width, Py_ssize_t element, row_t *row) {
    if (width < 1 || width > (1 << 24) || (element != 4 && element != 8)) return refuse("bad row shape");
    row->width = (size_t)width;
    row->element = (size_t)element;
    row->bytes = row->width * row->element;
    row->blocks = (row->bytes + BLOCK - 1) / BLOCK;
    row->full = row->blocks / GROUP;
    row->tail = row->blocks % GROUP;
    return 1;
}

/* The buffers and numbers that describe several sessions' keys, as all evaluations take them. */
typedef struct {
    Py_buffer keys, roots, left, right;
    Py_ssize_t sessions, slots;
    int depth, party;
} session_arguments;

static void release_sessions(session_arguments *a) {
    PyBuffer_Release(&a->keys);
    PyBuffer_Release(&a->roots);
    PyBuffer_Release(&a->left);
    PyBuffer_Release(&a->right);
}

static int check_sessions(const session_arguments *a, paths_t *p) {
    if (a->sessions < 0 || a->slots < 1 || a->depth < 0 || a->depth > MAX_DEPTH || (a->party & ~1))
        return refuse("sessions, slots, depth or party out of range");
    const size_t slots = times((size_t)a->sessions, (size_t)a->slots), words = times(slots, (size_t)a->depth);
    *p = (paths_t){a->keys.buf, a->roots.buf, a->left.buf, a->right.buf, (size_t)a->sessions, (size_t)a->slots,
                   a->depth, a->party};
    return fits(&a->keys, times((size_t)a->sessions, 3), BLOCK, 1, "keys") && fits(&a->roots, slots, BLOCK, 1, "roots") &&
           fits(&a->left, words, BLOCK, 1, "left") && fits(&a->right, words, 1, 1, "right");
}

static int check_leaves(Py_ssize_t leaves, int depth) {
    if (leaves < 1 || (size_t)leaves > (size_t)1 << depth) return refuse("more leaves than the depth has");
    return 1;
}

static int check_table(const Py_buffer *order, Py_ssize_t leaves, Py_ssize_t slots_per_bin, Py_ssize_t items,
                       const paths_t *p, table_t *table) {
    if (slots_per_bin < 1 || p->slots % (size_t)slots_per_bin || items < 1 || items > INT32_MAX)
        return refuse("slots per bin or items out of range");
    const size_t bins = p->slots / (size_t)slots_per_bin;
    *table = (table_t){order->buf, bins, (size_t)leaves, (size_t)slots_per_bin, (size_t)items};
    return check_leaves(leaves, p->depth) && fits(order, times(bins, (size_t)leaves), 4, 4, "order");
}

static int check_part(const Py_ssize_t part[4], const paths_t *p, const table_t *table, part_t *out) {
    *out = (part_t){(size_t)part[0], (size_t)part[1], (size_t)part[2], (size_t)part[3]};
    if (part[0] < 0 || part[0] > part[1] || out->slot_to > p->slots || part[2] < 0 || part[2] > part[3] ||
        out->leaf_to > table->leaves || out->leaf_from % CHUNK_LEAVES)
        return refuse("the part of the work is out of range or not on a chunk boundary");
    return 1;
}

static int fits_slots(const Py_buffer *slot_sums, const paths_t *p, row_t row) {
    return fits(slot_sums, times(p->sessions, p->slots), row.bytes, row.element, "slot sums");
}

static PyObject *finish(int ok, int failed) {
    if (!ok) return NULL;
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- the functions that Python sees ---- */

static PyObject *py_instruction_sets(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < KERNELS; i++) {
        if (!kernels[i]->available()) continue;
        PyObject *name = PyUnicode_FromString(kernels[i]->name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *py_select(PyObject *self, PyObject *args) {
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->available() && strcmp(kernels[i]->name, name) == 0) {
            active = kernels[i];
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "kernel: this processor has no instruction set '%s'", name);
    return NULL;
}

static PyObject *py_hash_blocks(PyObject *self, PyObject *args) {
    Py_buffer key, in, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*w*", &key, &in, &out)) return NULL;
    const size_t blocks = (size_t)in.len / BLOCK;
    const int ok = fits(&key, 1, BLOCK, 1, "key") && fits(&in, blocks, BLOCK, 1, "blocks") &&
                   fits(&out, blocks, BLOCK, 1, "out");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS active->hash_blocks(key.buf, in.buf, out.buf, blocks);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&in), PyBuffer_Release(&out);
    return finish(ok, 0);
}

static PyObject *py_add_stream(PyObject *self, PyObject *args) {
    Py_buffer key, values;
    Py_ssize_t element;
    int negative;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*np", &key, &values, &element, &negative)) return NULL;
    const int ok = (element == 4 || element == 8 || refuse("elements have 4 or 8 bytes")) &&
                   fits(&key, 1, BLOCK, 1, "key") &&
                   fits(&values, (size_t)(values.len / element), (size_t)element, (size_t)element, "values");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        active->add_stream(key.buf, values.buf, (size_t)values.len, (size_t)element, negative);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&values);
    return finish(ok, 0);
}

static PyObject *py_generate(PyObject *self, PyObject *args) {
    Py_buffer keys, roots0, roots1, alpha, left, right, leaf0, leaf1;
    Py_ssize_t slots;
    int depth;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*niw*w*w*w*", &keys, &roots0, &roots1, &alpha, &slots, &depth, &left, &right,
                          &leaf0, &leaf1))
        return NULL;
    const size_t n = (size_t)slots;
    const int ok = ((slots >= 1 && depth >= 0 && depth <= MAX_DEPTH) || refuse("slots or depth out of range")) &&
                   fits(&keys, 3, BLOCK, 1, "keys") && fits(&roots0, n, BLOCK, 1, "roots0") &&
                   fits(&roots1, n, BLOCK, 1, "roots1") && fits(&alpha, n, 8, 8, "alpha") &&
                   fits(&left, times(n, (size_t)depth), BLOCK, 1, "left") && fits(&right, times(n, (size_t)depth), 1, 1, "right") &&
                   fits(&leaf0, n, BLOCK, 1, "leaf0") && fits(&leaf1, n, BLOCK, 1, "leaf1");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        active->generate(keys.buf, roots0.buf, roots1.buf, alpha.buf, n, depth, left.buf, right.buf, leaf0.buf,
                         leaf1.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&keys), PyBuffer_Release(&roots0), PyBuffer_Release(&roots1), PyBuffer_Release(&alpha);
    PyBuffer_Release(&left), PyBuffer_Release(&right), PyBuffer_Release(&leaf0), PyBuffer_Release(&leaf1);
    return finish(ok, 0);
}

static PyObject *py_convert_gen(PyObject *self, PyObject *args) {
    Py_buffer key, leaf0, leaf1, payload, words;
    Py_ssize_t slots, width, element;
    row_t row;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*nnnw*", &key, &leaf0, &leaf1, &payload, &slots, &width, &element, &words))
        return NULL;
    const size_t n = (size_t)slots;
    const int ok = row_shape(width, element, &row) && (slots >= 1 || refuse("no slots")) &&
                   fits(&key, 1, BLOCK, 1, "key") && fits(&leaf0, n, BLOCK, 1, "leaf0") &&
                   fits(&leaf1, n, BLOCK, 1, "leaf1") && fits(&payload, n, row.bytes, row.element, "payload") &&
                   fits(&words, n, row.bytes, row.element, "words");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = active->convert_gen(key.buf, leaf0.buf, leaf1.buf, payload.buf, n, row, words.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&leaf0), PyBuffer_Release(&leaf1);
    PyBuffer_Release(&payload), PyBuffer_Release(&words);
    return finish(ok, failed);
}

static PyObject *py_expand(PyObject *self, PyObject *args) {
    session_arguments a;
    Py_buffer states;
    Py_ssize_t leaves;
    paths_t paths;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "(iy*y*y*y*nni)nw*", &a.party, &a.keys, &a.roots, &a.left, &a.right,
                          &a.sessions, &a.slots, &a.depth, &leaves, &states))
        return NULL;
    const int ok = check_sessions(&a, &paths) && (a.sessions == 1 || refuse("expand takes one session")) &&
                   check_leaves(leaves, a.depth) &&
                   fits(&states, times(round_up(paths.slots, GROUP), (size_t)leaves), BLOCK, 1, "states");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS failed = active->expand(&paths, (size_t)leaves, states.buf);
        Py_END_ALLOW_THREADS
    }
    release_sessions(&a), PyBuffer_Release(&states);
    return finish(ok, failed);
}

static PyObject *py_answer(PyObject *self, PyObject *args) {
    session_arguments a;
    Py_buffer order, rows, answers;
    Py_ssize_t leaves, slots_per_bin, items, columns, part[4];
    paths_t paths;
    table_t table;
    part_t work;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "(iy*y*y*y*nni)(y*nnn)(nnnn)y*nw*", &a.party, &a.keys, &a.roots, &a.left, &a.right,
                          &a.sessions, &a.slots, &a.depth, &order, &leaves, &slots_per_bin, &items, &part[0], &part[1],
                          &part[2], &part[3], &rows, &columns, &answers))
        return NULL;
    const int ok = check_sessions(&a, &paths) && check_table(&order, leaves, slots_per_bin, items, &paths, &table) &&
                   check_part(part, &paths, &table, &work) && (columns >= 1 || refuse("no columns")) &&
                   fits(&rows, times((size_t)items, (size_t)columns), 4, 4, "rows") &&
                   fits(&answers, times(times(paths.sessions, paths.slots), (size_t)columns), 4, 4, "answers");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = active->answer(&paths, &table, &work, rows.buf, (size_t)columns, answers.buf);
        Py_END_ALLOW_THREADS
    }
    release_sessions(&a), PyBuffer_Release(&order), PyBuffer_Release(&rows), PyBuffer_Release(&answers);
    return finish(ok, failed);
}

static PyObject *py_accumulate(PyObject *self, PyObject *args) {
    session_arguments a;
    Py_buffer order, words, sums, slot_sums = {0};
    PyObject *wanted = Py_None;
    Py_ssize_t leaves, slots_per_bin, items, width, element, part[4];
    paths_t paths;
    table_t table;
    part_t work;
    row_t row;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "(iy*y*y*y*nni)(y*nnn)(nnnn)y*nnw*|O", &a.party, &a.keys, &a.roots, &a.left, &a.right,
                          &a.sessions, &a.slots, &a.depth, &order, &leaves, &slots_per_bin, &items, &part[0], &part[1],
                          &part[2], &part[3], &words, &width, &element, &sums, &wanted))
        return NULL;
    const int ok = (wanted == Py_None || PyObject_GetBuffer(wanted, &slot_sums, PyBUF_WRITABLE) == 0) &&
                   check_sessions(&a, &paths) && check_table(&order, leaves, slots_per_bin, items, &paths, &table) &&
                   check_part(part, &paths, &table, &work) && row_shape(width, element, &row) &&
                   fits(&words, times(paths.sessions, paths.slots), row.bytes, row.element, "words") &&
                   fits(&sums, (size_t)items, row.bytes, row.element, "sums") &&
                   (wanted == Py_None || fits_slots(&slot_sums, &paths, row));
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = active->accumulate(&paths, &table, &work, words.buf, row, sums.buf, slot_sums.buf);
        Py_END_ALLOW_THREADS
    }
    release_sessions(&a), PyBuffer_Release(&order), PyBuffer_Release(&words), PyBuffer_Release(&sums);
    PyBuffer_Release(&slot_sums);
    return finish(ok, failed);
}

/* Only the slot sums: one bin that holds every slot and no item. */
static PyObject *py_slot_sums(PyObject *self, PyObject *args) {
    session_arguments a;
    Py_buffer words, slot_sums;
    Py_ssize_t leaves, width, element;
    paths_t paths;
    row_t row;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "(iy*y*y*y*nni)ny*nnw*", &a.party, &a.keys, &a.roots, &a.left, &a.right, &a.sessions,
                          &a.slots, &a.depth, &leaves, &words, &width, &element, &slot_sums))
        return NULL;
    const int ok = check_sessions(&a, &paths) && check_leaves(leaves, a.depth) && row_shape(width, element, &row) &&
                   fits(&words, times(paths.sessions, paths.slots), row.bytes, row.element, "words") &&
                   fits_slots(&slot_sums, &paths, row);
    if (ok) {
        const table_t table = {NULL, 1, (size_t)leaves, paths.slots, 0};
        const part_t all = {0, paths.slots, 0, (size_t)leaves};
        Py_BEGIN_ALLOW_THREADS
        failed = active->accumulate(&paths, &table, &all, words.buf, row, NULL, slot_sums.buf);
        Py_END_ALLOW_THREADS
    }
    release_sessions(&a), PyBuffer_Release(&words), PyBuffer_Release(&slot_sums);
    return finish(ok, failed);
}

static PyObject *py_project(PyObject *self, PyObject *args) {
    Py_buffer key, values, out;
    Py_ssize_t element;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*nw*", &key, &values, &element, &out)) return NULL;
    const int ok = (element == 4 || element == 8 || refuse("elements have 4 or 8 bytes")) &&
                   fits(&key, 1, BLOCK, 1, "key") && fits(&out, PROJECTIONS, (size_t)element, (size_t)element, "out") &&
                   fits(&values, (size_t)(values.len / element), (size_t)element, (size_t)element, "values");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        active->project(key.buf, values.buf, (size_t)(values.len / element), (size_t)element, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&values), PyBuffer_Release(&out);
    return finish(ok, 0);
}

static PyObject *py_row_tags(PyObject *self, PyObject *args) {
    Py_buffer key, rows, items, tags;
    Py_ssize_t width;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*nw*", &key, &rows, &items, &width, &tags)) return NULL;
    const size_t count = (size_t)items.len / 8;
    const int ok = ((width >= 1 && width <= 1 << 24) || refuse("bad row shape")) && fits(&key, 1, BLOCK, 1, "key") &&
                   fits(&items, count, 8, 8, "items") && fits(&rows, count, (size_t)width * 4, 1, "rows") &&
                   fits(&tags, count, 4, 4, "tags");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        active->row_tags(key.buf, rows.buf, items.buf, count, (size_t)width, tags.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&rows), PyBuffer_Release(&items), PyBuffer_Release(&tags);
    return finish(ok, 0);
}

static PyObject *py_leaf_hashes(PyObject *self, PyObject *args) {
    Py_buffer key, nodes, leaves, hashes;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &key, &nodes, &leaves, &hashes)) return NULL;
    const size_t count = (size_t)leaves.len / 8;
    const int ok = fits(&key, 1, BLOCK, 1, "key") && fits(&leaves, count, 8, 8, "leaves") &&
                   fits(&nodes, count, BLOCK, 1, "nodes") && fits(&hashes, count, HASH, 1, "hashes");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        active->leaf_hashes(key.buf, nodes.buf, leaves.buf, count, hashes.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&nodes), PyBuffer_Release(&leaves), PyBuffer_Release(&hashes);
    return finish(ok, 0);
}

static PyObject *py_answer_checked(PyObject *self, PyObject *args) {
    session_arguments a;
    Py_buffer order, rows, answers, leaf_keys, corrections, keys, fingerprints;
    Py_ssize_t leaves, slots_per_bin, items, columns, first_slot, part[4];
    paths_t paths;
    table_t table;
    part_t work;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "(iy*y*y*y*nni)(y*nnn)(nnnn)y*n(y*y*y*n)w*w*", &a.party, &a.keys, &a.roots, &a.left,
                          &a.right, &a.sessions, &a.slots, &a.depth, &order, &leaves, &slots_per_bin, &items, &part[0],
                          &part[1], &part[2], &part[3], &rows, &columns, &leaf_keys, &corrections, &keys, &first_slot,
                          &answers, &fingerprints))
        return NULL;
    const int ok = check_sessions(&a, &paths) && check_table(&order, leaves, slots_per_bin, items, &paths, &table) &&
                   check_part(part, &paths, &table, &work) && (columns >= 1 || refuse("no columns")) &&
                   fits(&rows, times((size_t)items, (size_t)columns), 4, 4, "rows") &&
                   fits(&answers, times(times(paths.sessions, paths.slots), (size_t)columns), 4, 4, "answers") &&
                   fits(&leaf_keys, paths.sessions, BLOCK, 1, "leaf keys") &&
                   fits(&corrections, times(paths.sessions, paths.slots), HASH, 1, "corrections") &&
                   fits(&keys, HASHES + 1, BLOCK, 1, "keys") &&
                   fits(&fingerprints, paths.sessions, BLOCK, 1, "fingerprints") &&
                   (first_slot >= 0 || refuse("the first slot is negative"));
    if (ok) {
        const checks_t checks = {leaf_keys.buf, corrections.buf, keys.buf, (size_t)first_slot};
        Py_BEGIN_ALLOW_THREADS
        failed = active->answer_checked(&paths, &table, &checks, &work, rows.buf, (size_t)columns, answers.buf,
                                        fingerprints.buf);
        Py_END_ALLOW_THREADS
    }
    release_sessions(&a), PyBuffer_Release(&order), PyBuffer_Release(&rows), PyBuffer_Release(&answers);
    PyBuffer_Release(&leaf_keys), PyBuffer_Release(&corrections), PyBuffer_Release(&keys);
    PyBuffer_Release(&fingerprints);
    return finish(ok, failed);
}

static PyObject *py_judge_proposals(PyObject *self, PyObject *args) {
    Py_buffer words, values, verdicts;
    unsigned long long slope, start;
    int bits;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*iKKw*w*", &words, &bits, &slope, &start, &values, &verdicts)) return NULL;
    const size_t count = (size_t)verdicts.len;
    const int ok = ((bits >= 0 && bits <= NOISE_BITS && start >> 52 == 0) || refuse("the curve of the noise is out of range")) &&
                   fits(&words, times(count, 2), 8, 8, "words") && fits(&values, count, 8, 8, "values");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        judge_proposals(words.buf, count, (envelope_t){bits, slope, start}, values.buf, verdicts.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words), PyBuffer_Release(&values), PyBuffer_Release(&verdicts);
    return finish(ok, 0);
}

/* Whether every number lies in [0, limit): the kernel uses them as indices. */
static int lie_below(const Py_buffer *numbers, Py_ssize_t limit, const char *otherwise) {
    const int64_t *number = numbers->buf;
    for (size_t i = 0; i < (size_t)numbers->len / 8; i++)
        if (number[i] < 0 || number[i] >= limit) return refuse(otherwise);
    return 1;
}

static PyObject *py_permute(PyObject *self, PyObject *args) {
    Py_buffer key, values;
    Py_ssize_t items;
    int backwards, failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*npw*", &key, &items, &backwards, &values)) return NULL;
    const size_t count = (size_t)values.len / 8;
    const int ok = ((items >= 1 && items <= INT32_MAX) || refuse("items out of range")) &&
                   fits(&key, 1, BLOCK, 1, "key") && fits(&values, count, 8, 8, "values") &&
                   lie_below(&values, items, "a value lies outside the catalogue");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = permute(active, key.buf, (uint32_t)items, backwards, values.buf, count);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key), PyBuffer_Release(&values);
    return finish(ok, failed);
}

static PyObject *py_match(PyObject *self, PyObject *args) {
    Py_buffer choices, slot_of;
    Py_ssize_t each, slots;
    int failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnw*", &choices, &each, &slots, &slot_of)) return NULL;
    const size_t items = (size_t)slot_of.len / 8;
    const int ok = ((each >= 1 && slots >= 1 && slots <= INT32_MAX) || refuse("choices or slots out of range")) &&
                   fits(&slot_of, items, 8, 8, "slot_of") && fits(&choices, times(items, (size_t)each), 8, 8, "choices") &&
                   lie_below(&choices, slots, "a choice is not a slot");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = match(choices.buf, items, (size_t)each, (size_t)slots, slot_of.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&choices), PyBuffer_Release(&slot_of);
    return finish(ok, failed);
}

static PyMethodDef methods[] = {
    {"instruction_sets", py_instruction_sets, METH_NOARGS, "The instruction sets this processor has, best first."},
    {"select", py_select, METH_VARARGS, "Use this instruction set from now on."},
    {"hash_blocks", py_hash_blocks, METH_VARARGS, NULL},
    {"add_stream", py_add_stream, METH_VARARGS, NULL},
    {"generate", py_generate, METH_VARARGS, NULL},
    {"convert_gen", py_convert_gen, METH_VARARGS, NULL},
    {"expand", py_expand, METH_VARARGS, NULL},
    {"answer", py_answer, METH_VARARGS, NULL},
    {"accumulate", py_accumulate, METH_VARARGS, NULL},
    {"slot_sums", py_slot_sums, METH_VARARGS, NULL},
    {"project", py_project, METH_VARARGS, NULL},
    {"row_tags", py_row_tags, METH_VARARGS, NULL},
    {"leaf_hashes", py_leaf_hashes, METH_VARARGS, NULL},
    {"answer_checked", py_answer_checked, METH_VARARGS, NULL},
    {"judge_proposals", py_judge_proposals, METH_VARARGS, NULL},
    {"permute", py_permute, METH_VARARGS, NULL},
    {"match", py_match, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "The C kernel; secemb_shared.kernel says whether it can be used.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    for (int i = KERNELS - 1; i >= 0; i--)
        if (kernels[i]->available()) active = kernels[i];
    if (!active) {
        PyErr_SetString(PyExc_ImportError, "this processor has no AES instructions");
        return NULL;
    }
    return PyModule_Create(&module);
}
