"""What the package says about itself holds: examples, types, the description of the API."""

import doctest
import importlib
import importlib.util
import inspect
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest

import ringway
from scene import Scene

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(HERE, "../tools/api_types.py")
TYPES = os.path.join(HERE, "../ringway/api.py")


class Examples(Scene):
    def examples_of(self, name: str) -> int:
        module = importlib.import_module(name)
        public = [getattr(module, one) for one in module.__all__]
        finder = doctest.DocTestFinder(exclude_empty=True)
        found = finder.find(module, name) if name != "ringway" else []
        for one in public:
            if inspect.isclass(one):
                # Its methods, too, wherever their module is.
                found += finder.find(one, f"{name}.{one.__name__}", module=False, globs={"ringway": ringway})  # type: ignore[arg-type]
        said = io.StringIO()
        runner = doctest.DocTestRunner(verbose=False)
        for test in found:
            test.globs.setdefault("ringway", ringway)
            test.globs.update({one.__name__: one for one in public if inspect.isclass(one)})
            runner.run(test, out=said.write)
        self.assertEqual(runner.failures, 0, said.getvalue())
        return runner.tries

    def test_the_examples_of_the_package_run(self) -> None:
        self.assertGreater(self.examples_of("ringway"), 25)

    def test_the_examples_of_the_socket_for_scapy_run(self) -> None:
        self.assertGreater(self.examples_of("ringway.scapy"), 3)


class Pages(Scene):
    def run_page(self, path: str) -> None:
        with open(os.path.join(HERE, "../..", path)) as page:
            blocks = re.findall(r"^```python\n(.*?)^```$", page.read(), re.MULTILINE | re.DOTALL)
        self.assertTrue(blocks)
        program = "\n".join(blocks)
        # Errors name the line of the program.
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.said = done.stdout

    def test_the_code_of_the_guide_runs(self) -> None:
        self.run_page("docs/guide/python.md")
        for line in ("3 frames sent", "60 bytes: b'hello'", "1 frames", "['wieght']"):
            self.assertIn(line, self.said)


class Types(Scene):
    def test_the_types_of_the_api_are_those_of_the_description(self) -> None:
        description = ringway.Client()._exchange("GET", "/openapi.json")
        made = subprocess.run([sys.executable, TOOL], input=description, stdout=subprocess.PIPE, check=True).stdout
        if os.environ.get("UPDATE"):
            with open(TYPES, "wb") as file:
                file.write(made)
        with open(TYPES, "rb") as file:
            same = made == file.read()
        self.assertTrue(same, "python/ringway/api.py is out of date: run UPDATE=1 make python-test")

    def check(self, *what: str) -> None:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *what]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_package_and_its_stubs_pass_mypy(self) -> None:
        self.check("-p", "ringway")

    def test_the_stubs_name_what_the_native_part_has(self) -> None:
        from ringway import _native

        stub = importlib.util.find_spec("ringway._native")
        assert stub is not None and stub.origin is not None
        with open(os.path.join(os.path.dirname(stub.origin), "_native.pyi")) as file:
            text = file.read()
        for kind in (_native.Port, _native.Memory, _native.Area):
            for name in (one for one in dir(kind) if not one.startswith("_")):
                self.assertIn(f"def {name}(", text)

    def test_a_program_that_uses_a_wrong_type_does_not_pass(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import ringway\nringway.Port('lan0:a').send(7)\nringway.Client().ports()[0]['nmae']\n")
            file.flush()
            with self.assertRaisesRegex(AssertionError, "(?s)send.*nmae"):
                self.check(file.name)


if __name__ == "__main__":
    unittest.main()
