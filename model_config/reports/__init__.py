"""Reports of a check: terminal, JUnit, Markdown, an HTML page, and the page of the zoo.

``schema.json`` describes the JSON of :meth:`model_config.results.CheckResult.to_dict`.
"""

from model_config.reports.junit import junit_xml
from model_config.reports.markdown import markdown
from model_config.reports.page import html_page
from model_config.reports.site import build_site
from model_config.reports.terminal import print_table
from model_config.reports.text import write_text
from model_config.reports.zoo_tables import write_tables

__all__ = ["build_site", "html_page", "junit_xml", "markdown", "print_table", "write_tables", "write_text"]
