"""The data libraries that scripts use most, each with a few lines that use it for what it is for."""

from __future__ import annotations

import importlib.metadata
from datetime import datetime
from typing import Any

USES = {
    "numpy": "import numpy as np\nfloat(np.linalg.norm(np.array([3.0, 4.0])))",
    "pandas": """
import pandas as pd
days = pd.DataFrame({"day": pd.to_datetime(["2024-01-02", "2024-01-03", "2024-02-01"]), "n": [1, 2, 4]})
by_month = days.groupby(days["day"].dt.to_period("M"))["n"].sum()
assert pd.Timestamp.now().year >= 2024 and days["day"][0].to_pydatetime().date().day == 2
add_to_output_files("months.csv", by_month)
import json
assert json.loads(json.dumps({"n": by_month.iloc[0]})) == {"n": 3}
(int(by_month.iloc[0]), by_month, days[:1])
""",
    "python-dateutil": "from dateutil import parser\nparser.parse('2 Jan 2024 10:00').isoformat()",
    "pytz": "import pytz\nfrom datetime import datetime\nstr(pytz.timezone('Europe/Berlin').localize(datetime(2024, 7, 1)).utcoffset())",
    "openpyxl": """
import io, openpyxl
book = openpyxl.Workbook()
book.active.append(["a", 1])
file = io.BytesIO()
book.save(file)
openpyxl.load_workbook(io.BytesIO(file.getvalue())).active["B1"].value
""",
    "xlsxwriter": """
import pathlib, xlsxwriter, pandas as pd
book = xlsxwriter.Workbook("by_hand.xlsx")
book.add_worksheet().write(0, 0, 7)
book.close()
pd.DataFrame({"a": [1]}).to_excel("by_pandas.xlsx", engine="xlsxwriter")
min(pathlib.Path(name).stat().st_size > 1000 for name in ("by_hand.xlsx", "by_pandas.xlsx"))
""",
    "PyYAML": "import yaml\nyaml.safe_load('a: [1, 2024-01-02]')['a'][1].year",
    "lxml": "from lxml import etree\netree.fromstring('<a><b>5</b></a>').findtext('b')",
    "beautifulsoup4": "from bs4 import BeautifulSoup\nBeautifulSoup('<p>hi <b>you</b></p>', 'html.parser').b.text",
    "Jinja2": "from jinja2 import Template\nTemplate('{{ a + 1 }}').render(a=1)",
    "scipy": "from scipy import optimize\nround(float(optimize.brentq(lambda x: x * x - 2, 0, 2)), 6)",
    "scikit-learn": "from sklearn.linear_model import LinearRegression\nround(float(LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).predict([[3]])[0]), 6)",
    "matplotlib": """
import io, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2], [3, 4])
file = io.BytesIO()
plt.savefig(file, format="png")
file.getvalue()[1:4].decode()
""",
    "pillow": "import io\nfrom PIL import Image\nf = io.BytesIO()\nImage.new('RGB', (4, 4), 'red').save(f, 'PNG')\nImage.open(f).size[0]",
    "sympy": "import sympy\nstr(sympy.factor('x**2 - 1'))",
    "networkx": "import networkx as nx\nnx.shortest_path_length(nx.path_graph(5), 0, 4)",
    "polars": "import polars as pl\npl.DataFrame({'a': [1, 2]}).with_columns(b=pl.lit('x'))[:1]",
    "pyarrow": "import pyarrow as pa\npa.table({'a': [1, None]})",
    "duckdb": "import duckdb\nduckdb.connect().execute('select 40 + 2').fetchall()[0][0]",
    "tabulate": "from tabulate import tabulate\ntabulate([[1, 2]], headers=['a', 'b'])",
}
"""By the name of the distribution."""

ANSWERS: dict[str, Any] = {
    "numpy": 5.0,
    "pandas": [
        3,
        [{"day": "2024-01", "n": 3}, {"day": "2024-02", "n": 4}],
        [{"day": datetime(2024, 1, 2), "n": 1}],
    ],
    "python-dateutil": "2024-01-02T10:00:00",
    "pytz": "2:00:00",
    "openpyxl": 1,
    "xlsxwriter": True,
    "PyYAML": 2024,
    "lxml": "5",
    "beautifulsoup4": "you",
    "Jinja2": "2",
    "scipy": 1.414214,
    "scikit-learn": 7.0,
    "matplotlib": "PNG",
    "pillow": 4,
    "sympy": "(x - 1)*(x + 1)",
    "networkx": 4,
    "polars": [{"a": 1, "b": "x"}],
    "pyarrow": [{"a": 1}, {"a": None}],
    "duckdb": 42,
    "tabulate": "  a    b\n---  ---\n  1    2",
}


def installed() -> list[str]:
    """Those of them that this environment has."""
    return [name for name in USES if _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
