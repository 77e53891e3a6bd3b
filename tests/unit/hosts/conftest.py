from tests.unit.control import control as control
from tests.unit.control import control_database as control_database
from tests.unit.control import databases as databases
